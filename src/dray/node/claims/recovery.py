"""A record made anew, or made whole, from what the API says.

Theory of operation: a `Preparation` of this node says that drivers may have a claim in their hands. If the
record does not know it, it is put there: with the pods bound to this node that refer to the claim as users,
or without users, so that it is given back. If the record is lost, claims that can have no preparation (those
of classic drivers, or all where the server keeps none) are put there too, for the pods that are bound here.
All of it counts as asked for with an unknown outcome: asking again, or asking to let go, is then right in
every case. A pod that refers to a claim by an entry that nobody can resolve any more might use any claim of
its namespace; it is a user of those that have no other, so that nothing is taken from under it.

A record that is whole may be an earlier copy. What runs tells: a pod with containers uses its claims,
whatever the record says of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from msgspec.structs import replace

from dray.api.classic import ClassicClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.preparation import Preparation
from dray.claims.reservation import ENDED
from dray.node.claims.admission import Absent, Claim, Found, parts_of
from dray.node.claims.plan import finish
from dray.node.claims.preparations import drivers_noted
from dray.node.claims.record import DriverPart, Held, Record, Stage, User


@dataclass(frozen=True, slots=True)
class Sight:
    """What the API says: the pods of this node with what their entries stand for, and its preparations."""

    pods: tuple[tuple[Pod, Mapping[str, Found]], ...]
    standing: tuple[Preparation, ...] | None
    """None when the server does not keep preparations."""


def lives(pod: Pod) -> bool:
    """Whether a pod may still use its claims: one that was reported to be over has given them back."""
    return pod.status.phase not in ENDED


def completed(record: Record, sight: Sight, *, lost: bool) -> Record:
    """The record with everything in it that drivers of this node may have in their hands."""
    pods = tuple((pod, found) for pod, found in sight.pods if lives(pod))
    for preparation in sight.standing or ():
        if record.claim(preparation.spec.claim.uid) is None:
            record = _admitted(record, _standing(preparation, pods))
    if lost:
        for held in _unannounced(pods, sight.standing is not None):
            if record.claim(held.uid) is None:
                record = _admitted(record, held)
    return record if sight.standing is None else _doubted(record, sight.standing)


def said_before(loaded: Record, record: Record, running: Set[str]) -> set[str]:
    """The claims of which an earlier agent has told the server, as far as anybody knows.

    What only the server says is not among them, unless somebody runs who uses it.
    """
    announced = {held.uid for held in loaded.claims if held.announced}
    return announced | {held.uid for held in record.claims if not running.isdisjoint(held.pods)}


def uncovered(record: Record, pod: Pod) -> bool:
    """Whether the record does not know of all that a pod may use."""
    known = {entry for held in record.used_by(pod.metadata.uid) for entry in _entries(held, pod.metadata.uid)}
    return any(entry.name not in known for entry in pod.spec.resource_claims)


def joined(record: Record, running: Iterable[tuple[Pod, Mapping[str, Found]]]) -> Record:
    """The record with pods whose containers run as users of what they use."""
    for pod, found in running:
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            held = _meant(record, pod, entry, what)
            if held is None or entry.name in _entries(held, pod.metadata.uid):
                continue
            others = tuple(user for user in held.users if user.uid != pod.metadata.uid)
            mine = _user(pod, (*_entries(held, pod.metadata.uid), entry.name))
            parts = held.parts
            if not held.users and what is not None and not isinstance(what, Absent):
                # It was given back and taken again, or is not known at all: nobody knows how far it came.
                parts = _asked(what)
            parts = tuple(
                part if part.state is Stage.PREPARED else replace(part, state=Stage.PREPARING)
                for part in parts
            )
            if parts:
                record = record.put(replace(held, users=(*others, mine), leaving=(), parts=parts))
    return record


def _meant(record: Record, pod: Pod, entry: PodResourceClaim, what: Found) -> Held | None:
    """The claim that an entry of a pod stands for; by its name when it does not exist any more."""
    if what is None:
        return None
    if not isinstance(what, Absent):
        return record.claim(what.metadata.uid) or _unused(what)
    place = (pod.metadata.namespace, entry.resource_claim_name)
    return next((held for held in record.claims if (held.namespace, held.name) == place), None)


def _entries(held: Held, pod_uid: str) -> tuple[str, ...]:
    return tuple(entry for user in held.users if user.uid == pod_uid for entry in user.entries)


def _admitted(record: Record, held: Held) -> Record:
    """Put a claim into the record; without users, it is on its way out at once."""
    if held.users:
        return record.put(held)
    nobody = User()
    record = finish(record.put(replace(held, users=(nobody,))), nobody.uid)
    kept = record.claim(held.uid)
    return record if kept is None else record.put(replace(kept, leaving=()))


def _standing(preparation: Preparation, pods: Iterable[tuple[Pod, Mapping[str, Found]]]) -> Held:
    """The claim of a preparation that the record does not know."""
    claim = preparation.spec.claim
    users, strays, parts = [], [], None
    for pod, found in pods:
        if pod.metadata.namespace != claim.namespace:
            continue
        entries, unresolved = [], False
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            if isinstance(what, Absent):
                unresolved = unresolved or entry.resource_claim_name in (None, claim.name)
            elif what is not None and what.metadata.uid == claim.uid:
                entries.append(entry.name)
                parts = _asked(what)
        if entries:
            users.append(_user(pod, entries))
        elif unresolved:
            strays.append(_user(pod, ()))
    if not parts:
        parts = tuple(
            DriverPart(driver=driver, state=Stage.PREPARING) for driver in drivers_noted(preparation)
        )
    return Held(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        users=tuple(users or strays),
        parts=parts,
        announced=True,
    )


def _unannounced(pods: Iterable[tuple[Pod, Mapping[str, Found]]], kept: bool) -> Iterable[Held]:
    """Claims of pods that may have been prepared without a preparation."""
    claims: dict[str, tuple[Held, dict[str, User]]] = {}
    for pod, found in pods:
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            if what is None or isinstance(what, Absent):
                continue
            held = _unused(what)
            if (kept and not held.classic) or not held.parts:
                continue
            users = claims.setdefault(held.uid, (held, {}))[1]
            before = users.get(pod.metadata.uid, _user(pod, ()))
            users[pod.metadata.uid] = replace(before, entries=(*before.entries, entry.name))
    return [replace(held, users=tuple(users.values())) for held, users in claims.values()]


def _doubted(record: Record, standing: Iterable[Preparation]) -> Record:
    """What is announced and has no preparation was perhaps given back since: ask again."""
    known = {preparation.spec.claim.uid for preparation in standing}
    for held in record.claims:
        if held.announced and held.uid not in known:
            parts = (
                replace(part, state=Stage.PREPARING) if part.state is Stage.PREPARED else part
                for part in held.parts
            )
            record = record.put(replace(held, parts=tuple(parts)))
    return record


def _unused(claim: Claim) -> Held:
    meta = claim.metadata
    return Held(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        classic=isinstance(claim, ClassicClaim),
        parts=_asked(claim),
    )


def _asked(claim: Claim) -> tuple[DriverPart, ...]:
    return tuple(replace(part, state=Stage.PREPARING) for part in parts_of(claim))


def _user(pod: Pod, entries: Iterable[str]) -> User:
    return User(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        entries=tuple(entries),
    )
