"""Transitions of the agent's claims record: pure functions that plan driver calls and apply their outcomes.

Theory of operation: the preparer passes the current record to a function here, makes the returned record
durable, and only then makes the calls returned with it. Another function applies each outcome to the record.
So the record always contains at least what drivers may have prepared, and after a crash between any two steps
it contains everything that must be prepared again or released.

    find_obstacle        what keeps a pod's claims from being prepared on this node
    begin_preparing      add a user; plan the missing calls
    withdraw_calls       undo planned calls that were not made
    record_prepared      apply the outcomes of prepare calls
    release_pod          remove a user
    plan_unprepare_calls plan the calls for claims without users
    record_unprepared    apply the outcomes of unprepare calls
    abandon_claims       forget claims that no driver unprepares, as an annotation asks
    confirm_withdrawn    forget a released claim after its Preparation is deleted
    apply_boot_id        adapt the record of an earlier agent to this boot of the machine

Rules for this file: no I/O, no clock, no tasks. No driver is called again for what it has prepared in this
boot, and nothing is forgotten that a driver was called for and has not unprepared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from dray.node.claims.outcomes import ClaimsPending, ClaimsRefused, NotReadyReason
from dray.node.claims.record import (
    ClaimsRecord,
    ClaimUser,
    DriverPart,
    NodeClaimStage,
    RecordedClaim,
    RecordedDevice,
)
from dray.node.plugins.driver_interface import ClaimRef, DriverCallFailure, PrepareOutcome, UnprepareOutcome


@dataclass(frozen=True, slots=True)
class AdmittedClaim:
    """A claim that a pod may use, with the part of each driver."""

    uid: str
    namespace: str
    name: str
    classic: bool
    entries: tuple[str, ...]
    """The entries of the pod that refer to it."""
    parts: tuple[DriverPart, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DriverKey(NamedTuple):
    """A driver's name and which of the two protocols it is called by."""

    name: str
    classic: bool


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One call of a driver for all its claims."""

    driver: DriverKey
    claims: tuple[ClaimRef, ...]
    new_uids: frozenset[str] = frozenset()
    """Uids of claims for which this driver was never called before."""

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(claim.uid for claim in self.claims)


# --- obstacles ---


def find_obstacle(
    record: ClaimsRecord, admitted: Iterable[AdmittedClaim]
) -> ClaimsRefused | ClaimsPending | None:
    """Return what keeps admitted claims from being prepared here now."""
    claims = tuple(admitted)
    for claim in claims:
        recorded = record.find_claim(claim.uid)
        if recorded is not None and recorded.state is NodeClaimStage.UNPREPARING:
            why = f"claim {claim} is being released by its last user here; it is prepared again after that"
            return ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, why)
        if recorded is not None and _is_reallocated(recorded, claim):
            why = (
                f"claim {claim} was reallocated while devices of its first allocation are prepared here; "
                "delete the pods that use it, so that those devices are released"
            )
            return ClaimsRefused(NotReadyReason.ALLOCATED_ANEW, why)
    return next(_find_conflicts(record, claims), None)


def _is_reallocated(recorded: RecordedClaim, claim: AdmittedClaim) -> bool:
    """Return whether a claim has other devices now than those for which drivers were called."""
    called = [part for part in recorded.parts if part.state is not NodeClaimStage.WANTED]
    current = {part.driver: frozenset(part.wanted) for part in claim.parts}
    return any(
        part.driver not in current or (part.wanted and frozenset(part.wanted) != current[part.driver])
        for part in called
    )


def _find_conflicts(
    record: ClaimsRecord, claims: tuple[AdmittedClaim, ...]
) -> Iterator[ClaimsRefused | ClaimsPending]:
    for position, claim in enumerate(claims):
        others: list[RecordedClaim | AdmittedClaim] = [
            recorded for recorded in record.claims if recorded.uid != claim.uid
        ]
        others += claims[:position]
        for other in others:
            for driver, device in _find_shared_devices(claim, other):
                path = f"device {driver}/{device.pool}/{device.device} of claim {claim}"
                if isinstance(other, RecordedClaim) and not other.users:
                    why = f"{path} is being released by claim {other}, which had it before"
                    yield ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, why)
                else:
                    users = (
                        ", ".join(map(str, other.users)) if isinstance(other, RecordedClaim) else "this pod"
                    )
                    yield ClaimsRefused(
                        NotReadyReason.DEVICE_HELD,
                        f"{path} is held by claim {other} on this node (used by {users})",
                    )


def _find_shared_devices(
    one: AdmittedClaim, other: RecordedClaim | AdmittedClaim
) -> Iterator[tuple[str, RecordedDevice]]:
    """Return devices that two claims cannot both hold."""
    theirs = {part.driver: part.wanted for part in other.parts}
    for part in one.parts:
        for device in part.wanted:
            for taken in theirs.get(part.driver, ()):
                if _are_exclusive(device, taken):
                    yield part.driver, device


def _are_exclusive(one: RecordedDevice, other: RecordedDevice) -> bool:
    """Return whether only one may be held: admin access is exempt, and shares differ by their ids."""
    if one.admin or other.admin or (one.pool, one.device) != (other.pool, other.device):
        return False
    return one.share_id is None or other.share_id is None or one.share_id == other.share_id


# --- preparation ---


def begin_preparing(
    record: ClaimsRecord,
    user: ClaimUser,
    admitted: tuple[AdmittedClaim, ...],
    drivers: Set[DriverKey],
    announce: bool,
) -> tuple[ClaimsRecord, tuple[DriverCall, ...]]:
    """Make a pod a user of claims, and plan the calls of registered drivers that are missing.

    With `announce`, the claims of these calls get a `Preparation` first. There must be no obstacle.
    """
    record = _drop_stale_entries(record, user, admitted)
    refs: dict[DriverKey, list[ClaimRef]] = {}
    new_uids: dict[DriverKey, set[str]] = {}
    for claim in admitted:
        recorded = _add_user(record.find_claim(claim.uid), claim, user)
        parts = []
        for part in recorded.parts:
            driver = DriverKey(part.driver, recorded.classic)
            if driver in drivers and part.state in (NodeClaimStage.WANTED, NodeClaimStage.PREPARING):
                refs.setdefault(driver, []).append(recorded.ref)
                if part.state is NodeClaimStage.WANTED:
                    new_uids.setdefault(driver, set()).add(recorded.uid)
                part = replace(part, state=NodeClaimStage.PREPARING)
            elif part.error:
                # The last error is outdated: now the driver is not registered.
                part = replace(part, error="")
            parts.append(part)
        called = any(recorded.ref in claims for claims in refs.values())
        announced = recorded.announced or (announce and called and not recorded.classic)
        record = record.put_claim(replace(recorded, parts=tuple(parts), announced=announced))
    calls = (
        DriverCall(driver, tuple(claims), frozenset(new_uids.get(driver, ())))
        for driver, claims in refs.items()
    )
    return record, tuple(calls)


def _drop_stale_entries(
    record: ClaimsRecord, user: ClaimUser, admitted: tuple[AdmittedClaim, ...]
) -> ClaimsRecord:
    """Let each entry refer to one claim; an earlier claim of an entry stays in use until the pod ends."""
    current = {entry: claim.uid for claim in admitted for entry in claim.entries}
    for recorded in record.find_used_by(user.uid):
        users = tuple(
            each
            if each.uid != user.uid
            else replace(
                each, entries=tuple(e for e in each.entries if current.get(e, recorded.uid) == recorded.uid)
            )
            for each in recorded.users
        )
        if users != recorded.users:
            record = record.put_claim(replace(recorded, users=users))
    return record


def _add_user(recorded: RecordedClaim | None, claim: AdmittedClaim, user: ClaimUser) -> RecordedClaim:
    """Return a claim with one more user."""
    joining = replace(user, entries=claim.entries)
    if recorded is None or not recorded.users:
        announced = recorded is not None and recorded.announced
        return RecordedClaim(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            classic=claim.classic,
            users=(joining,),
            parts=claim.parts,
            announced=announced,
        )
    if user.uid in recorded.pod_uids:
        users = tuple(joining if each.uid == user.uid else each for each in recorded.users)
    else:
        users = (*recorded.users, joining)
    known = {part.driver: part for part in recorded.parts if part.state is not NodeClaimStage.WANTED}
    parts = (
        replace(known[part.driver], wanted=part.wanted) if part.driver in known else part
        for part in claim.parts
    )
    return replace(recorded, users=users, parts=tuple(parts))


def withdraw_calls(record: ClaimsRecord, calls: Iterable[DriverCall]) -> ClaimsRecord:
    """Undo calls that were not made: drivers never called before have prepared nothing."""
    for call in calls:
        for uid in call.new_uids:
            record = _update_part(
                record, uid, call.driver.name, NodeClaimStage.PREPARING, state=NodeClaimStage.WANTED
            )
    return record


def record_prepared(
    record: ClaimsRecord, driver: str, outcomes: Mapping[str, PrepareOutcome]
) -> ClaimsRecord:
    """Apply a driver's outcomes; its devices replace earlier ones."""
    for uid, outcome in outcomes.items():
        if isinstance(outcome, DriverCallFailure):
            record = _update_part(record, uid, driver, NodeClaimStage.PREPARING, error=outcome.text)
        else:
            record = _update_part(
                record,
                uid,
                driver,
                NodeClaimStage.PREPARING,
                state=NodeClaimStage.PREPARED,
                devices=tuple(outcome),
                error="",
            )
    return record


def _update_part(
    record: ClaimsRecord, uid: str, driver: str, stage: NodeClaimStage, **changes: object
) -> ClaimsRecord:
    """Change a driver's part of a claim, if it is in the given stage."""
    recorded = record.find_claim(uid)
    part = recorded.find_part(driver) if recorded is not None else None
    if recorded is None or part is None or part.state is not stage:
        return record
    changed = replace(part, **changes)
    return record.put_claim(
        replace(recorded, parts=tuple(changed if each is part else each for each in recorded.parts))
    )


# --- release ---


def release_pod(record: ClaimsRecord, pod_uid: str) -> ClaimsRecord:
    """Remove a user of all its claims; the release of those without other users begins."""
    for recorded in tuple(record.find_used_by(pod_uid)):
        users = tuple(user for user in recorded.users if user.uid != pod_uid)
        if users:
            record = record.put_claim(replace(recorded, users=users))
            continue
        parts = tuple(
            replace(part, state=NodeClaimStage.UNPREPARING, error="")
            for part in recorded.parts
            if part.state is not NodeClaimStage.WANTED
        )
        record = _put_or_remove(record, replace(recorded, users=(), leaving=recorded.users, parts=parts))
    return record


def collect_drivers(claims: Iterable[RecordedClaim | AdmittedClaim]) -> frozenset[DriverKey]:
    """Return all drivers that have a part in claims."""
    return frozenset(DriverKey(part.driver, claim.classic) for claim in claims for part in claim.parts)


def plan_unprepare_calls(claims: Iterable[RecordedClaim], drivers: Set[DriverKey]) -> tuple[DriverCall, ...]:
    """Plan the unprepare calls of claims without users, for registered drivers."""
    calls: dict[DriverKey, list[ClaimRef]] = {}
    for recorded in claims:
        for part in recorded.parts if not recorded.users else ():
            driver = DriverKey(part.driver, recorded.classic)
            if driver in drivers:
                # Classic drivers get the CDI names that they returned.
                cdi = tuple(name for device in part.devices for name in device.cdi)
                ref = ClaimRef(
                    recorded.namespace, recorded.name, recorded.uid, cdi if recorded.classic else ()
                )
                calls.setdefault(driver, []).append(ref)
    return tuple(DriverCall(driver, tuple(refs)) for driver, refs in calls.items())


def record_unprepared(
    record: ClaimsRecord, driver: str, outcomes: Mapping[str, UnprepareOutcome]
) -> ClaimsRecord:
    """Apply a driver's outcomes; a claim without parts stays only while it is announced."""
    for uid, outcome in outcomes.items():
        if isinstance(outcome, DriverCallFailure):
            record = _update_part(record, uid, driver, NodeClaimStage.UNPREPARING, error=outcome.text)
            continue
        recorded = record.find_claim(uid)
        if recorded is not None and not recorded.users:
            parts = tuple(part for part in recorded.parts if part.driver != driver)
            record = _put_or_remove(record, replace(recorded, parts=parts))
    return record


def abandon_claims(record: ClaimsRecord, uids: Iterable[str]) -> ClaimsRecord:
    """Forget the remaining parts of claims without users, because a person asked for it."""
    for uid in uids:
        recorded = record.find_claim(uid)
        if recorded is not None and not recorded.users:
            record = _put_or_remove(record, replace(recorded, parts=()))
    return record


def confirm_withdrawn(record: ClaimsRecord, uid: str) -> ClaimsRecord:
    """Forget a released claim whose Preparation is deleted."""
    recorded = record.find_claim(uid)
    if recorded is None or recorded.state is not NodeClaimStage.LETTING_GO:
        return record
    return record.remove_claim(uid)


def _put_or_remove(record: ClaimsRecord, recorded: RecordedClaim) -> ClaimsRecord:
    """Keep a claim in release as long as something is left to do for it."""
    if recorded.parts:
        return record.put_claim(recorded)
    return (
        record.put_claim(replace(recorded, leaving=()))
        if recorded.announced
        else record.remove_claim(recorded.uid)
    )


# --- restart ---


def apply_boot_id(record: ClaimsRecord, boot_id: str) -> ClaimsRecord:
    """Adapt the record of an earlier agent to this boot of the machine.

    In another or an unknown boot nothing is prepared any more: drivers are called again for all claims in
    use. The devices they returned stay recorded until they return new ones.
    """
    if boot_id and boot_id == record.boot_id:
        return record
    return replace(record, boot_id=boot_id, claims=tuple(map(_reset_prepared, record.claims)))


def _reset_prepared(recorded: RecordedClaim) -> RecordedClaim:
    parts = (
        replace(part, state=NodeClaimStage.PREPARING) if part.state is NodeClaimStage.PREPARED else part
        for part in recorded.parts
    )
    return replace(recorded, parts=tuple(parts))
