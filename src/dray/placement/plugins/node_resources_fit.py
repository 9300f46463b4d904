"""Whether a node has room for a pod, and how full it is.

Theory of operation: for every resource the pod asks for, what the node can give less what its pods have must
be enough; of a resource that the pod does not ask for, a node may be short. The number of pods is a resource
like the others. Reasons hold what is the same for all nodes, the resource and how much the pod asks for, and
not what is left on this one; they say whether the node has none of it, never had enough, or has too little
left, because only the last can be helped by pods that leave.

A score is the part of cpu and of memory that stays free (or is taken), in percent rounded down, and the mean
of both rounded down, counted with the small amounts of containers that ask for nothing; a node without one
of the two is judged by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from dray.placement.framework import MOST, Opinion
from dray.placement.rejections import Signal, Topic, Verdict
from dray.placement.resource_requests import CPU, MEMORY, PODS, Needs
from dray.values.quantity import Form, Quantity

if TYPE_CHECKING:
    from dray.placement.pending_pod import Subject
    from dray.placement.snapshot import Seat, Snapshot

NAME = "NodeResourcesFit"

_WAKES_GROWN = frozenset({Signal(Topic.NODES)})
_WAKES_EMPTIED = frozenset({Signal(Topic.NODES), Signal(Topic.ROOM)})
_IN_BYTES = (MEMORY, "ephemeral-storage", "hugepages-")


class Scoring(StrEnum):
    """Which nodes are better: those with the most free, or those with the least."""

    LEAST = "least"
    MOST = "most"


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Requests of pods against `status.allocatable` of nodes."""

    scoring: Scoring = Scoring.LEAST
    name: str = NAME

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion:
        """No to nodes with too little of something; the others by how full they would be."""
        return _opinion(subject.needs, self.scoring)


@lru_cache(maxsize=1024)
def _opinion(needs: Needs, scoring: Scoring) -> Opinion:
    """The same for all pods of a template."""
    return Opinion(filter=_refusing(needs), score=_scoring(needs, _SHARES[scoring]))


# --- room ---


class _Shortage(StrEnum):
    """How a resource is lacking; the words around its name."""

    ABSENT = "no {}"
    TOO_SMALL = "too little {} in all"
    TAKEN = "too little {} free"


_Shortages = tuple[tuple[str, _Shortage], ...]


def _refusing(needs: Needs) -> Callable[[Seat], Verdict | None]:
    wanted = tuple(needs.amounts.items())
    known: dict[_Shortages, Verdict] = {}

    def refuse(seat: Seat) -> Verdict | None:
        likeness = seat.likeness
        allocatable, used = likeness.traits.allocatable, likeness.needs.amounts
        for name, asked in wanted:
            if asked > allocatable.get(name, 0) - used.get(name, 0):
                break
        else:
            return None
        shortages = _shortages(needs, allocatable, used) if allocatable else ()
        verdict = known.get(shortages)
        if verdict is None:
            verdict = known[shortages] = _verdict(needs, shortages)
        return verdict

    return refuse


def _shortages(needs: Needs, allocatable: Mapping[str, int], used: Mapping[str, int]) -> _Shortages:
    found: list[tuple[str, _Shortage]] = []
    for name, asked in sorted(needs.amounts.items()):
        given = allocatable.get(name, 0)
        if given <= 0:
            found.append((name, _Shortage.ABSENT))
        elif asked > given:
            found.append((name, _Shortage.TOO_SMALL))
        elif asked > given - used.get(name, 0):
            found.append((name, _Shortage.TAKEN))
    return tuple(found)


def _verdict(needs: Needs, shortages: _Shortages) -> Verdict:
    """The shortages in words; none at all is a node of which nobody has said what it can give."""
    if not shortages:
        return Verdict(NAME, "status.allocatable does not say what the node can give", _WAKES_GROWN)
    reason = ", ".join(_phrase(needs, name, shortage) for name, shortage in shortages)
    emptied = all(shortage is _Shortage.TAKEN for _, shortage in shortages)
    return Verdict(NAME, reason, _WAKES_EMPTIED if emptied else _WAKES_GROWN)


def _phrase(needs: Needs, name: str, shortage: _Shortage) -> str:
    if name == PODS:
        return "too many pods"
    asked = Quantity(needs.of(name), Form.BINARY if name.startswith(_IN_BYTES) else Form.DECIMAL)
    return f"{shortage.format(name)} (asks for {asked})"


# --- fullness ---

_Share = Callable[[int, int], int]


def _free(taken: int, given: int) -> int:
    return (given - taken) * MOST // given if taken < given else 0


def _full(taken: int, given: int) -> int:
    return taken * MOST // given if taken < given else MOST


_SHARES: dict[Scoring, _Share] = {Scoring.LEAST: _free, Scoring.MOST: _full}


def _scoring(needs: Needs, share: _Share) -> Callable[[Seat], int]:
    cpu, memory = needs.weighed

    def score(seat: Seat) -> int:
        likeness = seat.likeness
        allocatable, (used_cpu, used_memory) = likeness.traits.allocatable, likeness.needs.weighed
        cpus, memories = allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)
        if cpus > 0 and memories > 0:
            return (share(used_cpu + cpu, cpus) + share(used_memory + memory, memories)) // 2
        if cpus > 0:
            return share(used_cpu + cpu, cpus)
        return share(used_memory + memory, memories) if memories > 0 else 0

    return score
