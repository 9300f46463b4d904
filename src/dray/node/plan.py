"""Which claims are prepared and given back, and when: decisions on the agent's record, without a world.

Theory of operation: the shell reads what is there, asks here what to do, keeps the record it gets back, and
only then makes the calls it got with it. Every answer is put into the record by another function of this
file. So at any moment the record says at least as much as drivers may have in their hands, and a shell that
dies between any two steps finds in it everything that must be asked again or given back.

    admit      may the pod have its claims, and what of which driver are they
    begin      the pod uses them; the calls that are missing
    prepared   what a driver answered
    finish     the pod uses nothing any more; the calls that give back what it was the last to use
    unprepared what a driver answered
    awakened   the agent, or the whole machine, started again

Rules for this file: no I/O, no clock, no tasks. Nothing is asked twice of a driver that has said yes in this
boot, and nothing is forgotten that a driver was asked for and has not let go of.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from dray.node.drivers import ClaimRef, PrepareOutcome, UnprepareOutcome
from dray.node.record import DriverPart, Record, User


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim that a pod may use, and what each driver has to do for it."""

    uid: str
    namespace: str
    name: str
    classic: bool
    entries: tuple[str, ...]
    """The entries of the pod that stand for it."""
    parts: tuple[DriverPart, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a driver for all claims of a pod that concern it."""

    driver: str
    claims: tuple[ClaimRef, ...]
    fresh: frozenset[str] = frozenset()
    """Uids of claims that this driver was never asked for before."""


@dataclass(frozen=True, slots=True)
class InHand:
    """A device that is ready for a pod."""

    entry: str
    request: str
    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...]


def begin(
    record: Record, user: User, wanted: tuple[Wanted, ...], drivers: Set[str]
) -> tuple[Record, tuple[Call, ...]]:
    raise AssertionError


def prepared(record: Record, driver: str, outcomes: Mapping[str, PrepareOutcome]) -> Record:
    raise AssertionError


def finish(record: Record, pod_uid: str, drivers: Set[str]) -> tuple[Record, tuple[Call, ...]]:
    raise AssertionError


def unprepared(record: Record, driver: str, outcomes: Mapping[str, UnprepareOutcome]) -> Record:
    raise AssertionError


def awakened(record: Record, boot_id: str) -> Record:
    raise AssertionError
