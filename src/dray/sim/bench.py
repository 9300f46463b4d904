"""Timing the allocator: how long an answer takes, beside a reference, and what the story of it costs.

Theory of operation: an operation is what a scheduler does for one pod: normalise its claims, search (on one
node, or over all of them with one search per shape) and assemble results for the node that was chosen. The
stock is prepared beforehand, as it is kept between pods. An operation is repeated for a while and the best
time counts: on a shared machine the rest is somebody else's time. `hard` scenarios are answered
on a fresh stock each time, because remembering the last answer would be cheating.

Reference times are scaled by calibration: the same loop is run here, and the machine that takes twice as long
for it is granted twice the time.

What beats cost is measured by telling them again: the beats of a search are recorded, then built and yielded
once more by a generator that does nothing else. Nothing but the telling remains, so its share of the time of
the whole search is what the story adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from dray.allocator.allocate import Allocated, allocate, survey
from dray.allocator.assemble import assemble
from dray.allocator.beats import Beat, DeadEnd, Ending, GaveUp, Point, Solved, Took
from dray.allocator.contents import Judge
from dray.allocator.search import search
from dray.allocator.stock import Stock
from dray.allocator.wants import ask_of
from dray.sim.scenarios import Reference, Scenario

Clock = Callable[[], float]

PASS_SECONDS = 0.0006
PASSES = 100
ROUNDS = 4
"""Many short passes, in rounds over everything: the best one is the one that nobody disturbed."""

LOOP, LOOP_PIECES = 3_000_000, 500
"""The calibration loop of the reference, and the pieces it is timed in."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One scenario, measured. Times are microseconds; `reference` is scaled to this machine."""

    scenario: Scenario
    ending: Ending
    right: bool
    micros: float
    reference: float | None = None
    telling: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Our time in terms of the reference; below one is faster."""
        return None if self.reference is None else self.micros / self.reference

    @property
    def gave_up(self) -> bool:
        return isinstance(self.ending, GaveUp)

    @property
    def story_share(self) -> float:
        """What telling adds to searching, as a fraction; nothing where the search is not timed alone."""
        return self.telling / (self.micros - self.telling) if self.telling else 0.0


class Calibration:
    """How long the loop of the reference takes here; the best time of each of its pieces counts."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._best = [float("inf")] * LOOP_PIECES

    def run(self) -> None:
        """Time every piece once more."""
        size = LOOP // LOOP_PIECES
        for piece, known in enumerate(self._best):
            work = partial(_loop, piece * size, (piece + 1) * size)
            self._best[piece] = min(known, _seconds(work, self._clock))

    @property
    def seconds(self) -> float:
        """The whole loop, as far as it was timed."""
        return sum(self._best)


def _loop(start: int, end: int) -> int:
    s = 0
    for i in range(start, end):
        s += i * i % 7
    return s


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


class Trial:
    """One scenario while it is being measured; every round may find a better time."""

    def __init__(
        self,
        scenario: Scenario,
        judge: Judge,
        new_share_id: Callable[[], str],
        clock: Clock = time.perf_counter,
    ) -> None:
        self._scenario = scenario
        self._judge = judge
        self._new_share_id = new_share_id
        self._clock = clock
        self._stock = scenario.stock(judge)
        self._micros = self._telling = float("inf")
        ask = ask_of(scenario.claims, self._stock.classes.get)
        story = list(search(ask, self._stock.seen_from(scenario.nodes[-1]).shape))
        self._retell = _retelling(story) if scenario.kind != "nodes" else None

    def run(self) -> None:
        """Measure for a while."""
        if self._scenario.kind == "hard":
            stock = self._scenario.stock(self._judge)
            once = _seconds(self._operation(stock), self._clock) * 1e6
            self._micros = min(self._micros, once)
        else:
            self._micros = min(self._micros, self._warm(self._operation(self._stock)))
        if self._retell is not None:
            self._telling = min(self._telling, self._warm(self._retell))

    def timing(self, reference: Reference | None, calibration: float) -> Timing:
        """What was found, beside the reference."""
        scaled = None
        if reference is not None and self._scenario.name in reference.times:
            scaled = reference.times[self._scenario.name] * calibration / reference.calibration
        telling = 0.0 if self._retell is None else self._telling
        return Timing(self._scenario, *self._checked(), self._micros, scaled, telling)

    def _operation(self, stock: Stock) -> Callable[[], object]:
        """What is timed: one pod, from its claims to their allocations."""
        claims, nodes, new_share_id = self._scenario.claims, self._scenario.nodes, self._new_share_id
        if self._scenario.kind != "nodes":
            (node,) = nodes
            return lambda: allocate(stock, claims, node, new_share_id=new_share_id)

        def cycle() -> object:
            ask = ask_of(claims, stock.classes.get)
            best = None
            for view, ending in survey(stock, ask, nodes):
                if best is None and isinstance(ending, Solved):
                    best = view, ending
            if best is None:
                return None
            view, ending = best
            return assemble(ask, view, ending.picks, new_share_id=new_share_id)

        return cycle

    def _warm(self, work: Callable[[], object]) -> float:
        """Microseconds per call, best of several passes over a prepared stock."""
        once = max(min(_seconds(work, self._clock) for _ in range(3)), 1e-7)
        times = max(1, int(PASS_SECONDS / once))

        def many() -> None:
            for _ in range(times):
                work()

        return min(_seconds(many, self._clock) for _ in range(PASSES)) / times * 1e6

    def _checked(self) -> tuple[Ending, bool]:
        """How the search ends on the last node, and whether that is what is expected."""
        scenario = self._scenario
        answer = allocate(self._stock, scenario.claims, scenario.nodes[-1], new_share_id=self._new_share_id)
        if isinstance(answer.ending, Solved) is not scenario.found:
            return answer.ending, False
        results = answer.results if isinstance(answer, Allocated) else ()
        devices = tuple(
            f"{device.request}={device.driver}/{device.pool}/{device.device}"
            for result in results
            for device in result.devices.results
        )
        return answer.ending, not scenario.devices or devices == scenario.devices


def _retelling(story: list[Beat]) -> Callable[[], object]:
    """Work that builds and yields the beats of a story once more, and does nothing else."""
    took = [beat for beat in story if isinstance(beat, Took)]
    dead = [beat for beat in story if isinstance(beat, DeadEnd)]
    picks = [(beat.pick, list(beat.passed_over)) for beat in took]
    ends = [
        (beat.point.choice, beat.point.want, beat.point.nth, list(beat.refused), beat.short) for beat in dead
    ]
    ending = story[-1]

    def told() -> Iterator[Beat]:
        for pick, refused in picks:
            yield Took(pick, tuple(refused))
        for choice, want, nth, refused, short in ends:
            yield DeadEnd(Point(choice, want, nth), tuple(refused), short)
        yield ending

    def drain() -> None:
        for _ in told():
            pass

    return drain
