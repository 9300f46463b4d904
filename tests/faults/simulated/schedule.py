"""A schedule: which processes there are, what users do, and which faults happen, each at its time.

Theory of operation: a schedule is a value that follows from its seed and can be printed, run again and made
smaller: leaving out a step changes nothing about the others. Steps name what they act on by number; a number
without such an object does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import Final

BLOCK: Final = 32
"""Schedules that begin with the same cluster; their seeds are in one block."""
LONG_EVERY: Final = 100
"""One schedule of so many is long."""
CLOSE_FAULTS, CLOSE_SECONDS = 0.6, 0.05
"""How many faults happen shortly after a step of a user, and how shortly."""

USER_STEPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "create pod": 30,
        "create claim": 6,
        "fill quota": 4,
        "delete pod": 12,
        "delete pod by force": 7,
        "recreate pod": 5,
        "delete claim": 4,
        "taint device": 3,
        "taint by rule": 3,
        "delete taint rule": 2,
        "withdraw slice": 3,
        "publish slice": 4,
        "delete class": 1,
        "create class": 2,
        "write device status": 2,
        "lose and fence node": 2,
    }
)
"""What users and drivers do, and how often."""

NEEDS_REPAIR: Final = frozenset(
    {"taint device", "taint by rule", "withdraw slice", "delete class", "lose and fence node"}
)
"""What users do that an administrator must undo at the end."""

FAULT_STEPS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "crash server": 8,
        "crash scheduler": 6,
        "crash controllers": 6,
        "crash agent": 8,
        "pause process": 6,
        "cut off process": 6,
        "jump clock": 4,
        "reboot machine": 3,
        "slow network": 6,
        "lossy network": 8,
        "cut watches": 5,
        "store trouble": 6,
        "store lag": 6,
        "compact store": 3,
        "driver trouble": 5,
    }
)
"""What goes wrong, and how often."""


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """Something that happens at a time."""

    time: float
    name: str
    number: int
    """Chooses what it acts on."""
    seconds: float
    """How long a fault lasts."""

    def __str__(self) -> str:
        return f"{self.time:7.3f} {self.name} ({self.number}, {self.seconds:.1f} s)"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The processes of a cluster."""

    servers: int
    schedulers: int
    nodes: int
    leader_election: bool
    transactions: bool
    """Whether the store commits sequences, so that the server has transactions."""

    @classmethod
    def from_seed(cls, block: int) -> ClusterShape:
        """Draw the shape for a block of schedules."""
        random = Random(f"shape {block}")
        schedulers = random.choice((1, 1, 2, 2))
        return cls(
            random.choice((1, 1, 2)),
            schedulers,
            random.choice((1, 2, 2, 3)),
            schedulers == 2 and random.random() < 0.3,
            bool(block % 3),
        )


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything about one run that is drawn before it begins."""

    seed: int
    shape: ClusterShape
    steps: tuple[ScheduledStep, ...]
    seconds: float
    """How long users act and faults happen."""

    @property
    def block(self) -> int:
        """The block of schedules that begin with the same cluster."""
        return self.seed // BLOCK

    @classmethod
    def from_seed(cls, seed: int) -> Schedule:
        """Draw a schedule."""
        random = Random(f"schedule {seed}")
        is_long = random.randrange(LONG_EVERY) == 0
        seconds = random.uniform(400.0, 900.0) if is_long else random.choice((0.3, 2.0, 5.0, 15.0, 40.0))
        users = _draw_steps(
            random, USER_STEPS, random.randint(20, 40) if is_long else random.randint(2, 9), seconds
        )
        users.append(ScheduledStep(0.0, "create pod", random.getrandbits(30), 0.0))
        count = random.randint(8, 25) if is_long else random.randint(0, 5)
        faults = [
            _move_close(random, fault, users) for fault in _draw_steps(random, FAULT_STEPS, count, seconds)
        ]
        steps = [*users, *faults]
        shape = ClusterShape.from_seed(seed // BLOCK)
        return cls(seed, shape, tuple(sorted(steps, key=lambda step: step.time)), seconds)

    def without(self, places: range) -> Schedule:
        """Return the schedule without some of its steps."""
        kept = tuple(step for place, step in enumerate(self.steps) if place not in places)
        return replace(self, steps=kept)


def _move_close(random: Random, fault: ScheduledStep, users: Sequence[ScheduledStep]) -> ScheduledStep:
    """Move most faults close behind something that a user does: only then there is something to disturb."""
    if random.random() > CLOSE_FAULTS:
        return fault
    return replace(fault, time=random.choice(users).time + random.expovariate(1 / CLOSE_SECONDS))


def _draw_steps(random: Random, table: Mapping[str, int], count: int, seconds: float) -> list[ScheduledStep]:
    names = random.choices(list(table), weights=list(table.values()), k=count)
    return [
        ScheduledStep(random.random() * seconds, name, random.getrandbits(30), seconds * random.random() ** 2)
        for name in names
    ]
