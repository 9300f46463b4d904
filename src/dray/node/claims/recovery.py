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

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.preparation import Preparation
from dray.claims.reservation import FINISHED_PHASES
from dray.node.claims.admission import Claim, ClaimLookup, MissingClaim, build_driver_parts
from dray.node.claims.plan import release_pod
from dray.node.claims.preparations import parse_drivers
from dray.node.claims.record import ClaimsRecord, ClaimUser, DriverPart, NodeClaimStage, RecordedClaim


@dataclass(frozen=True, slots=True)
class ObservedClaims:
    """What the API says: the pods of this node with what their entries stand for, and its preparations."""

    pods: tuple[tuple[Pod, Mapping[str, ClaimLookup]], ...]
    preparations: tuple[Preparation, ...] | None
    """None when the server does not keep preparations."""


def may_use_claims(pod: Pod) -> bool:
    """Whether a pod may still use its claims: one that was reported to be over has given them back."""
    return pod.status.phase not in FINISHED_PHASES


def complete_record(record: ClaimsRecord, observed: ObservedClaims, *, lost: bool) -> ClaimsRecord:
    """The record with everything in it that drivers of this node may have in their hands."""
    pods = tuple((pod, found) for pod, found in observed.pods if may_use_claims(pod))
    for preparation in observed.preparations or ():
        if record.find_claim(preparation.spec.claim.uid) is None:
            record = _put_claim(record, _build_from_preparation(preparation, pods))
    if lost:
        for held in _find_unannounced(pods, observed.preparations is not None):
            if record.find_claim(held.uid) is None:
                record = _put_claim(record, held)
    return record if observed.preparations is None else _reset_unconfirmed(record, observed.preparations)


def find_announced(loaded: ClaimsRecord, record: ClaimsRecord, running: Set[str]) -> set[str]:
    """The claims of which an earlier agent has told the server, as far as anybody knows.

    What only the server says is not among them, unless somebody runs who uses it.
    """
    announced = {held.uid for held in loaded.claims if held.announced}
    return announced | {held.uid for held in record.claims if not running.isdisjoint(held.pod_uids)}


def has_unknown_entries(record: ClaimsRecord, pod: Pod) -> bool:
    """Whether the record does not know of all that a pod may use."""
    known = {
        entry
        for held in record.find_used_by(pod.metadata.uid)
        for entry in _list_entries(held, pod.metadata.uid)
    }
    return any(entry.name not in known for entry in pod.spec.resource_claims)


def add_running_users(
    record: ClaimsRecord, running: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]]
) -> ClaimsRecord:
    """The record with pods whose containers run as users of what they use."""
    for pod, found in running:
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            held = _find_claim(record, pod, entry, what)
            if held is None or entry.name in _list_entries(held, pod.metadata.uid):
                continue
            others = tuple(user for user in held.users if user.uid != pod.metadata.uid)
            mine = _build_user(pod, (*_list_entries(held, pod.metadata.uid), entry.name))
            parts = held.parts
            if not held.users and what is not None and not isinstance(what, MissingClaim):
                # It was given back and taken again, or is not known at all: nobody knows how far it came.
                parts = _build_asked_parts(what)
            parts = tuple(
                part
                if part.state is NodeClaimStage.PREPARED
                else replace(part, state=NodeClaimStage.PREPARING)
                for part in parts
            )
            if parts:
                record = record.put_claim(replace(held, users=(*others, mine), leaving=(), parts=parts))
    return record


def _find_claim(
    record: ClaimsRecord, pod: Pod, entry: PodResourceClaim, lookup: ClaimLookup
) -> RecordedClaim | None:
    """The claim that an entry of a pod stands for; by its name when it does not exist any more."""
    if lookup is None:
        return None
    if not isinstance(lookup, MissingClaim):
        return record.find_claim(lookup.metadata.uid) or _build_unused_claim(lookup)
    place = (pod.metadata.namespace, entry.resource_claim_name)
    return next((held for held in record.claims if (held.namespace, held.name) == place), None)


def _list_entries(held: RecordedClaim, pod_uid: str) -> tuple[str, ...]:
    return tuple(entry for user in held.users if user.uid == pod_uid for entry in user.entries)


def _put_claim(record: ClaimsRecord, held: RecordedClaim) -> ClaimsRecord:
    """Put a claim into the record; without users, it is on its way out at once."""
    if held.users:
        return record.put_claim(held)
    nobody = ClaimUser()
    record = release_pod(record.put_claim(replace(held, users=(nobody,))), nobody.uid)
    kept = record.find_claim(held.uid)
    return record if kept is None else record.put_claim(replace(kept, leaving=()))


def _build_from_preparation(
    preparation: Preparation, pods: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]]
) -> RecordedClaim:
    """The claim of a preparation that the record does not know."""
    claim = preparation.spec.claim
    users, strays, parts = [], [], None
    for pod, found in pods:
        if pod.metadata.namespace != claim.namespace:
            continue
        entries, unresolved = [], False
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            if isinstance(what, MissingClaim):
                unresolved = unresolved or entry.resource_claim_name in (None, claim.name)
            elif what is not None and what.metadata.uid == claim.uid:
                entries.append(entry.name)
                parts = _build_asked_parts(what)
        if entries:
            users.append(_build_user(pod, entries))
        elif unresolved:
            strays.append(_build_user(pod, ()))
    if not parts:
        parts = tuple(
            DriverPart(driver=driver, state=NodeClaimStage.PREPARING) for driver in parse_drivers(preparation)
        )
    return RecordedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        users=tuple(users or strays),
        parts=parts,
        announced=True,
    )


def _find_unannounced(
    pods: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]], preparations_served: bool
) -> Iterable[RecordedClaim]:
    """Claims of pods that may have been prepared without a preparation."""
    claims: dict[str, tuple[RecordedClaim, dict[str, ClaimUser]]] = {}
    for pod, found in pods:
        for entry in pod.spec.resource_claims:
            what = found[entry.name]
            if what is None or isinstance(what, MissingClaim):
                continue
            held = _build_unused_claim(what)
            if (preparations_served and not held.classic) or not held.parts:
                continue
            users = claims.setdefault(held.uid, (held, {}))[1]
            before = users.get(pod.metadata.uid, _build_user(pod, ()))
            users[pod.metadata.uid] = replace(before, entries=(*before.entries, entry.name))
    return [replace(held, users=tuple(users.values())) for held, users in claims.values()]


def _reset_unconfirmed(record: ClaimsRecord, preparations: Iterable[Preparation]) -> ClaimsRecord:
    """What is announced and has no preparation was perhaps given back since: ask again."""
    known = {preparation.spec.claim.uid for preparation in preparations}
    for held in record.claims:
        if held.announced and held.uid not in known:
            parts = (
                replace(part, state=NodeClaimStage.PREPARING)
                if part.state is NodeClaimStage.PREPARED
                else part
                for part in held.parts
            )
            record = record.put_claim(replace(held, parts=tuple(parts)))
    return record


def _build_unused_claim(claim: Claim) -> RecordedClaim:
    meta = claim.metadata
    return RecordedClaim(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        classic=isinstance(claim, ClassicResourceClaim),
        parts=_build_asked_parts(claim),
    )


def _build_asked_parts(claim: Claim) -> tuple[DriverPart, ...]:
    return tuple(replace(part, state=NodeClaimStage.PREPARING) for part in build_driver_parts(claim))


def _build_user(pod: Pod, entries: Iterable[str]) -> ClaimUser:
    return ClaimUser(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        entries=tuple(entries),
    )
