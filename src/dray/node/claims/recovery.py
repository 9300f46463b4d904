"""Recovery of the claims record: rebuilds or completes it from API objects and running pods.

Theory of operation: a `Preparation` of this node means that drivers may have prepared a claim. If the record
does not know the claim, it is added: with the pods bound to this node that refer to it as users, or without
users, so that it is released. If the record is lost, claims that can have no Preparation (those of classic
drivers, or all where the server does not have the kind) are added too, for the pods bound here. All of these
count as called with an unknown outcome: preparing again or unpreparing is then correct in every case. A pod
with an entry that cannot be resolved any more might use any claim of its namespace; it becomes a user of
those that have no other, so that no device is unprepared while it runs.

A complete record may still be an earlier copy of the file. Therefore a pod with running containers uses its
claims, whatever the record says.
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
    """The pods of this node with the claims of their entries, and its Preparations, as read from the API."""

    pods: tuple[tuple[Pod, Mapping[str, ClaimLookup]], ...]
    preparations: tuple[Preparation, ...] | None
    """None when the server does not have the kind."""


def may_use_claims(pod: Pod) -> bool:
    """Return whether a pod may still use its claims: those of a finished pod are released."""
    return pod.status.phase not in FINISHED_PHASES


def complete_record(record: ClaimsRecord, observed: ObservedClaims, *, lost: bool) -> ClaimsRecord:
    """Return the record with every claim that drivers of this node may have prepared."""
    pods = tuple((pod, found) for pod, found in observed.pods if may_use_claims(pod))
    for preparation in observed.preparations or ():
        if record.find_claim(preparation.spec.claim.uid) is None:
            record = _put_claim(record, _build_from_preparation(preparation, pods))
    if lost:
        for recorded in _find_unannounced(pods, observed.preparations is not None):
            if record.find_claim(recorded.uid) is None:
                record = _put_claim(record, recorded)
    return record if observed.preparations is None else _reset_unconfirmed(record, observed.preparations)


def find_announced(loaded: ClaimsRecord, record: ClaimsRecord, running: Set[str]) -> set[str]:
    """Return the uids of claims that an earlier agent announced to the server, as far as is known.

    Claims that only the server knows are included only if a running pod uses them.
    """
    announced = {recorded.uid for recorded in loaded.claims if recorded.announced}
    return announced | {
        recorded.uid for recorded in record.claims if not running.isdisjoint(recorded.pod_uids)
    }


def has_unknown_entries(record: ClaimsRecord, pod: Pod) -> bool:
    """Return whether the record does not know every claim that a pod may use."""
    known = {
        entry
        for recorded in record.find_used_by(pod.metadata.uid)
        for entry in recorded.list_entries(pod.metadata.uid)
    }
    return any(entry.name not in known for entry in pod.spec.resource_claims)


def add_running_users(
    record: ClaimsRecord, running: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]]
) -> ClaimsRecord:
    """Return the record with pods whose containers run as users of their claims."""
    for pod, found in running:
        for entry in pod.spec.resource_claims:
            claim = found[entry.name]
            recorded = _find_claim(record, pod, entry, claim)
            if recorded is None or entry.name in recorded.list_entries(pod.metadata.uid):
                continue
            others = tuple(user for user in recorded.users if user.uid != pod.metadata.uid)
            user = _build_user(pod, (*recorded.list_entries(pod.metadata.uid), entry.name))
            parts = recorded.parts
            if not recorded.users and claim is not None and not isinstance(claim, MissingClaim):
                # It was released and prepared again, or is not recorded at all: its stage is unknown.
                parts = _build_called_parts(claim)
            parts = tuple(
                part
                if part.state is NodeClaimStage.PREPARED
                else replace(part, state=NodeClaimStage.PREPARING)
                for part in parts
            )
            if parts:
                record = record.put_claim(replace(recorded, users=(*others, user), leaving=(), parts=parts))
    return record


def _find_claim(
    record: ClaimsRecord, pod: Pod, entry: PodResourceClaim, lookup: ClaimLookup
) -> RecordedClaim | None:
    """Return the claim of an entry of a pod; found by name when it does not exist any more."""
    if lookup is None:
        return None
    if not isinstance(lookup, MissingClaim):
        return record.find_claim(lookup.metadata.uid) or _build_unused_claim(lookup)
    key = (pod.metadata.namespace, entry.resource_claim_name)
    return next((each for each in record.claims if (each.namespace, each.name) == key), None)


def _put_claim(record: ClaimsRecord, recorded: RecordedClaim) -> ClaimsRecord:
    """Put a claim into the record; without users, its release begins at once."""
    if recorded.users:
        return record.put_claim(recorded)
    nobody = ClaimUser()
    record = release_pod(record.put_claim(replace(recorded, users=(nobody,))), nobody.uid)
    kept = record.find_claim(recorded.uid)
    return record if kept is None else record.put_claim(replace(kept, leaving=()))


def _build_from_preparation(
    preparation: Preparation, pods: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]]
) -> RecordedClaim:
    """Build the recorded claim of a Preparation that the record does not know."""
    claim = preparation.spec.claim
    users, possible_users, parts = [], [], None
    for pod, found in pods:
        if pod.metadata.namespace != claim.namespace:
            continue
        entries, unresolved = [], False
        for entry in pod.spec.resource_claims:
            lookup = found[entry.name]
            if isinstance(lookup, MissingClaim):
                unresolved = unresolved or entry.resource_claim_name in (None, claim.name)
            elif lookup is not None and lookup.metadata.uid == claim.uid:
                entries.append(entry.name)
                parts = _build_called_parts(lookup)
        if entries:
            users.append(_build_user(pod, entries))
        elif unresolved:
            possible_users.append(_build_user(pod, ()))
    if not parts:
        parts = tuple(
            DriverPart(driver=driver, state=NodeClaimStage.PREPARING) for driver in parse_drivers(preparation)
        )
    return RecordedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        users=tuple(users or possible_users),
        parts=parts,
        announced=True,
    )


def _find_unannounced(
    pods: Iterable[tuple[Pod, Mapping[str, ClaimLookup]]], preparations_served: bool
) -> Iterable[RecordedClaim]:
    """Return claims of pods that drivers may have prepared without a Preparation."""
    claims: dict[str, tuple[RecordedClaim, dict[str, ClaimUser]]] = {}
    for pod, found in pods:
        for entry in pod.spec.resource_claims:
            lookup = found[entry.name]
            if lookup is None or isinstance(lookup, MissingClaim):
                continue
            recorded = _build_unused_claim(lookup)
            if (preparations_served and not recorded.classic) or not recorded.parts:
                continue
            users = claims.setdefault(recorded.uid, (recorded, {}))[1]
            before = users.get(pod.metadata.uid, _build_user(pod, ()))
            users[pod.metadata.uid] = replace(before, entries=(*before.entries, entry.name))
    return [replace(recorded, users=tuple(users.values())) for recorded, users in claims.values()]


def _reset_unconfirmed(record: ClaimsRecord, preparations: Iterable[Preparation]) -> ClaimsRecord:
    """Reset announced claims without a Preparation to preparing: they may have been released since."""
    known = {preparation.spec.claim.uid for preparation in preparations}
    for recorded in record.claims:
        if recorded.announced and recorded.uid not in known:
            parts = (
                replace(part, state=NodeClaimStage.PREPARING)
                if part.state is NodeClaimStage.PREPARED
                else part
                for part in recorded.parts
            )
            record = record.put_claim(replace(recorded, parts=tuple(parts)))
    return record


def _build_unused_claim(claim: Claim) -> RecordedClaim:
    meta = claim.metadata
    return RecordedClaim(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        classic=isinstance(claim, ClassicResourceClaim),
        parts=_build_called_parts(claim),
    )


def _build_called_parts(claim: Claim) -> tuple[DriverPart, ...]:
    return tuple(replace(part, state=NodeClaimStage.PREPARING) for part in build_driver_parts(claim))


def _build_user(pod: Pod, entries: Iterable[str]) -> ClaimUser:
    return ClaimUser(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        entries=tuple(entries),
    )
