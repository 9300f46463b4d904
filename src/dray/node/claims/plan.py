"""Which claims are prepared and given back, and when: decisions on the agent's record, without a world.

Theory of operation: the shell reads what is there, asks here what to do, keeps the record it gets back, and
only then makes the calls it got with it. Every answer is put into the record by another function of this
file. So at any moment the record says at least as much as drivers may have in their hands, and a shell that
dies between any two steps finds in it everything that must be asked again or given back.

    obstacle    what stands in the way of a pod's claims on this node
    begin       the pod uses them; the calls that are missing
    withdrawn   calls that were not made after all
    prepared    what a driver answered
    finish      the pod uses nothing any more
    giving_back the calls that let go of claims without users
    unprepared  what a driver answered
    abandoned   a person said to forget what no driver takes back
    confirmed   nothing in the API says any more that this node has a claim
    awakened    the agent, or the whole machine, started again

Rules for this file: no I/O, no clock, no tasks. Nothing is asked twice of a driver that has said yes in this
boot, and nothing is forgotten that a driver was asked for and has not let go of.
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
    """A claim that a pod may use, and what each driver has to do for it."""

    uid: str
    namespace: str
    name: str
    classic: bool
    entries: tuple[str, ...]
    """The entries of the pod that stand for it."""
    parts: tuple[DriverPart, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class DriverKey(NamedTuple):
    """A driver as it is called: by name, in one of the two protocols."""

    name: str
    classic: bool


@dataclass(frozen=True, slots=True)
class DriverCall:
    """One call of a driver for all claims that concern it."""

    driver: DriverKey
    claims: tuple[ClaimRef, ...]
    new_uids: frozenset[str] = frozenset()
    """Uids of claims that this driver was never asked for before."""

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(claim.uid for claim in self.claims)


# --- what stands in the way ---


def find_obstacle(
    record: ClaimsRecord, admitted: Iterable[AdmittedClaim]
) -> ClaimsRefused | ClaimsPending | None:
    """What keeps claims that a pod may have from being prepared here and now."""
    claims = tuple(admitted)
    for claim in claims:
        held = record.find_claim(claim.uid)
        if held is not None and held.state is NodeClaimStage.UNPREPARING:
            why = f"claim {claim} is being given back by its last user here; it is prepared anew after that"
            return ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, why)
        if held is not None and _is_reallocated(held, claim):
            why = (
                f"claim {claim} was allocated anew while devices of its first allocation are prepared here; "
                "delete the pods that use it, so that those are given back"
            )
            return ClaimsRefused(NotReadyReason.ALLOCATED_ANEW, why)
    return next(_find_conflicts(record, claims), None)


def _is_reallocated(held: RecordedClaim, claim: AdmittedClaim) -> bool:
    """Whether a claim that drivers were asked for asks for other devices now."""
    asked = [part for part in held.parts if part.state is not NodeClaimStage.WANTED]
    now = {part.driver: frozenset(part.wanted) for part in claim.parts}
    return any(
        part.driver not in now or (part.wanted and frozenset(part.wanted) != now[part.driver])
        for part in asked
    )


def _find_conflicts(
    record: ClaimsRecord, claims: tuple[AdmittedClaim, ...]
) -> Iterator[ClaimsRefused | ClaimsPending]:
    for position, claim in enumerate(claims):
        others: list[RecordedClaim | AdmittedClaim] = [
            held for held in record.claims if held.uid != claim.uid
        ]
        others += claims[:position]
        for other in others:
            for driver, device in _find_shared_devices(claim, other):
                place = f"device {driver}/{device.pool}/{device.device} of claim {claim}"
                if isinstance(other, RecordedClaim) and not other.users:
                    why = f"{place} is being given back by claim {other}, which had it before"
                    yield ClaimsPending(NotReadyReason.GIVEN_BACK_FIRST, why)
                else:
                    users = (
                        ", ".join(map(str, other.users)) if isinstance(other, RecordedClaim) else "this pod"
                    )
                    yield ClaimsRefused(
                        NotReadyReason.DEVICE_HELD,
                        f"{place} is held by claim {other} on this node (used by {users})",
                    )


def _find_shared_devices(
    one: AdmittedClaim, other: RecordedClaim | AdmittedClaim
) -> Iterator[tuple[str, RecordedDevice]]:
    """Devices that two claims cannot both have."""
    theirs = {part.driver: part.wanted for part in other.parts}
    for part in one.parts:
        for device in part.wanted:
            for taken in theirs.get(part.driver, ()):
                if _are_exclusive(device, taken):
                    yield part.driver, device


def _are_exclusive(one: RecordedDevice, other: RecordedDevice) -> bool:
    """Admin access takes nothing, shares are told apart by their ids, everything else is the whole device."""
    if one.admin or other.admin or (one.pool, one.device) != (other.pool, other.device):
        return False
    return one.share_id is None or other.share_id is None or one.share_id == other.share_id


# --- preparing ---


def begin_preparing(
    record: ClaimsRecord,
    user: ClaimUser,
    admitted: tuple[AdmittedClaim, ...],
    drivers: Set[DriverKey],
    announce: bool,
) -> tuple[ClaimsRecord, tuple[DriverCall, ...]]:
    """A pod uses claims from now on; what has to be asked of the drivers that are there.

    With `announce`, the claims of these calls get a `Preparation` first. Nothing may be in the way.
    """
    record = _drop_stale_entries(record, user, admitted)
    asked: dict[DriverKey, list[ClaimRef]] = {}
    fresh: dict[DriverKey, set[str]] = {}
    for claim in admitted:
        held = _add_user(record.find_claim(claim.uid), claim, user)
        parts = []
        for part in held.parts:
            driver = DriverKey(part.driver, held.classic)
            if driver in drivers and part.state in (NodeClaimStage.WANTED, NodeClaimStage.PREPARING):
                asked.setdefault(driver, []).append(held.ref)
                if part.state is NodeClaimStage.WANTED:
                    fresh.setdefault(driver, set()).add(held.uid)
                part = replace(part, state=NodeClaimStage.PREPARING)
            elif part.error:
                # What it said last is no news any more: it is not there.
                part = replace(part, error="")
            parts.append(part)
        called = any(held.ref in claims for claims in asked.values())
        announced = held.announced or (announce and called and not held.classic)
        record = record.put_claim(replace(held, parts=tuple(parts), announced=announced))
    calls = (
        DriverCall(driver, tuple(claims), frozenset(fresh.get(driver, ())))
        for driver, claims in asked.items()
    )
    return record, tuple(calls)


def _drop_stale_entries(
    record: ClaimsRecord, user: ClaimUser, admitted: tuple[AdmittedClaim, ...]
) -> ClaimsRecord:
    """An entry stands for one claim. What it stood for before stays in use until the pod ends."""
    now = {entry: claim.uid for claim in admitted for entry in claim.entries}
    for held in record.find_used_by(user.uid):
        users = tuple(
            each
            if each.uid != user.uid
            else replace(each, entries=tuple(e for e in each.entries if now.get(e, held.uid) == held.uid))
            for each in held.users
        )
        if users != held.users:
            record = record.put_claim(replace(held, users=users))
    return record


def _add_user(held: RecordedClaim | None, claim: AdmittedClaim, user: ClaimUser) -> RecordedClaim:
    """A claim with one more user."""
    joining = replace(user, entries=claim.entries)
    if held is None or not held.users:
        announced = held is not None and held.announced
        return RecordedClaim(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            classic=claim.classic,
            users=(joining,),
            parts=claim.parts,
            announced=announced,
        )
    if user.uid in held.pod_uids:
        users = tuple(joining if each.uid == user.uid else each for each in held.users)
    else:
        users = (*held.users, joining)
    known = {part.driver: part for part in held.parts if part.state is not NodeClaimStage.WANTED}
    parts = (
        replace(known[part.driver], wanted=part.wanted) if part.driver in known else part
        for part in claim.parts
    )
    return replace(held, users=users, parts=tuple(parts))


def withdraw_calls(record: ClaimsRecord, calls: Iterable[DriverCall]) -> ClaimsRecord:
    """Calls were not made after all: who was never asked before knows nothing."""
    for call in calls:
        for uid in call.new_uids:
            record = _update_part(
                record, uid, call.driver.name, NodeClaimStage.PREPARING, state=NodeClaimStage.WANTED
            )
    return record


def record_prepared(
    record: ClaimsRecord, driver: str, outcomes: Mapping[str, PrepareOutcome]
) -> ClaimsRecord:
    """What a driver answered. A list of devices replaces the one before."""
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
    """Change a driver's part of a claim, if it is at a stage."""
    held = record.find_claim(uid)
    part = held.find_part(driver) if held is not None else None
    if held is None or part is None or part.state is not stage:
        return record
    changed = replace(part, **changes)
    return record.put_claim(
        replace(held, parts=tuple(changed if each is part else each for each in held.parts))
    )


# --- giving back ---


def release_pod(record: ClaimsRecord, pod_uid: str) -> ClaimsRecord:
    """A pod uses nothing any more. What it was the last to use is on its way out."""
    for held in tuple(record.find_used_by(pod_uid)):
        users = tuple(user for user in held.users if user.uid != pod_uid)
        if users:
            record = record.put_claim(replace(held, users=users))
            continue
        parts = tuple(
            replace(part, state=NodeClaimStage.UNPREPARING, error="")
            for part in held.parts
            if part.state is not NodeClaimStage.WANTED
        )
        record = _put_or_remove(record, replace(held, users=(), leaving=held.users, parts=parts))
    return record


def collect_drivers(claims: Iterable[RecordedClaim | AdmittedClaim]) -> frozenset[DriverKey]:
    """All drivers that have a part in claims."""
    return frozenset(DriverKey(part.driver, claim.classic) for claim in claims for part in claim.parts)


def plan_unprepare_calls(claims: Iterable[RecordedClaim], drivers: Set[DriverKey]) -> tuple[DriverCall, ...]:
    """The calls that let go of claims without users, as far as their drivers are there."""
    asked: dict[DriverKey, list[ClaimRef]] = {}
    for held in claims:
        for part in held.parts if not held.users else ():
            driver = DriverKey(part.driver, held.classic)
            if driver in drivers:
                # Classic drivers get back what they returned.
                cdi = tuple(name for device in part.devices for name in device.cdi)
                ref = ClaimRef(held.namespace, held.name, held.uid, cdi if held.classic else ())
                asked.setdefault(driver, []).append(ref)
    return tuple(DriverCall(driver, tuple(refs)) for driver, refs in asked.items())


def record_unprepared(
    record: ClaimsRecord, driver: str, outcomes: Mapping[str, UnprepareOutcome]
) -> ClaimsRecord:
    """What a driver answered. A claim of which no driver has anything is only still announced, or gone."""
    for uid, outcome in outcomes.items():
        if isinstance(outcome, DriverCallFailure):
            record = _update_part(record, uid, driver, NodeClaimStage.UNPREPARING, error=outcome.text)
            continue
        held = record.find_claim(uid)
        if held is not None and not held.users:
            parts = tuple(part for part in held.parts if part.driver != driver)
            record = _put_or_remove(record, replace(held, parts=parts))
    return record


def abandon_claims(record: ClaimsRecord, uids: Iterable[str]) -> ClaimsRecord:
    """A person said to forget what no driver takes back of claims without users."""
    for uid in uids:
        held = record.find_claim(uid)
        if held is not None and not held.users:
            record = _put_or_remove(record, replace(held, parts=()))
    return record


def confirm_withdrawn(record: ClaimsRecord, uid: str) -> ClaimsRecord:
    """Nothing in the API says any more that this node has a claim."""
    held = record.find_claim(uid)
    if held is None or held.state is not NodeClaimStage.LETTING_GO:
        return record
    return record.remove_claim(uid)


def _put_or_remove(record: ClaimsRecord, held: RecordedClaim) -> ClaimsRecord:
    """Keep a claim on its way out as long as there is something left to do for it."""
    if held.parts:
        return record.put_claim(held)
    return record.put_claim(replace(held, leaving=())) if held.announced else record.remove_claim(held.uid)


# --- beginning again ---


def apply_boot_id(record: ClaimsRecord, boot_id: str) -> ClaimsRecord:
    """The record of an earlier agent, as it holds now.

    In another boot of the machine, or when nobody can tell which one it is, nothing is prepared any more:
    whatever a pod still uses is asked for again. What drivers returned stays known until they answer.
    """
    if boot_id and boot_id == record.boot_id:
        return record
    return replace(record, boot_id=boot_id, claims=tuple(map(_reset_prepared, record.claims)))


def _reset_prepared(held: RecordedClaim) -> RecordedClaim:
    parts = (
        replace(part, state=NodeClaimStage.PREPARING) if part.state is NodeClaimStage.PREPARED else part
        for part in held.parts
    )
    return replace(held, parts=tuple(parts))
