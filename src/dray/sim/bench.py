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
from itertools import pairwise

from dray.allocator.allocate import allocate, survey
from dray.allocator.assemble import assemble
from dray.allocator.beats import Beat, DeadEnd, Ending, GaveUp, Point, Solved, Took
from dray.allocator.contents import Judge
from dray.allocator.search import search
from dray.allocator.stock import Stock
from dray.allocator.wants import ask_of
from dray.sim.scenarios import Reference, Scenario

Clock = Callable[[], float]

PASS_SECONDS = 0.0006
PASSES = 400
"""Many short passes: the best one is the one that nobody disturbed."""

FRESH_PASSES = 5

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


def calibration(clock: Clock = time.perf_counter) -> float:
    """Seconds that the loop of the reference takes here when nobody disturbs it.

    It is cut into pieces and the best of several runs of each piece counts, as it does for scenarios.
    """
    edges = range(0, LOOP + 1, LOOP // LOOP_PIECES)
    total = 0.0
    for start, end in pairwise(edges):
        total += min(_seconds(partial(_loop, start, end), clock) for _ in range(9))
    return total


def _loop(start: int, end: int) -> int:
    s = 0
    for i in range(start, end):
        s += i * i % 7
    return s


def _seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


@dataclass(frozen=True, slots=True)
class Bench:
    """How to measure: the judge of selectors, where share ids come from, and the reference."""

    judge: Judge
    new_share_id: Callable[[], str]
    reference: Reference | None = None
    calibration: float = 0.0
    clock: Clock = time.perf_counter

    def timing(self, scenario: Scenario) -> Timing:
        """Measure one scenario."""
        ending, right = self._checked(scenario)
        fresh = scenario.kind == "hard"
        micros = (
            self._fresh(scenario) if fresh else self._warm(self._operation(scenario, self._stock(scenario)))
        )
        telling = self._warm(_retelling(self._story(scenario))) if scenario.kind != "nodes" else 0.0
        return Timing(scenario, ending, right, micros, self._scaled(scenario.name), telling)

    def _stock(self, scenario: Scenario) -> Stock:
        return scenario.stock(self.judge)

    def _scaled(self, name: str) -> float | None:
        if self.reference is None or name not in self.reference.times:
            return None
        return self.reference.times[name] * self.calibration / self.reference.calibration

    def _operation(self, scenario: Scenario, stock: Stock) -> Callable[[], object]:
        """What is timed: one pod, from its claims to their allocations."""
        claims, nodes = scenario.claims, scenario.nodes
        if scenario.kind != "nodes":
            (node,) = nodes
            return lambda: allocate(stock, claims, node, new_share_id=self.new_share_id)

        def cycle() -> object:
            ask = ask_of(claims, stock.classes.get)
            best = None
            for view, ending in survey(stock, ask, nodes):
                if best is None and isinstance(ending, Solved):
                    best = view, ending
            if best is None:
                return None
            view, ending = best
            return assemble(ask, view, ending.picks, new_share_id=self.new_share_id)

        return cycle

    def _warm(self, work: Callable[[], object]) -> float:
        """Microseconds per call, best of several passes over a prepared stock."""
        once = max(min(_seconds(work, self.clock) for _ in range(3)), 1e-7)
        times = max(1, int(PASS_SECONDS / once))

        def many() -> None:
            for _ in range(times):
                work()

        return min(_seconds(many, self.clock) for _ in range(PASSES)) / times * 1e6

    def _fresh(self, scenario: Scenario) -> float:
        """Microseconds of the first call on a fresh stock, best of several."""
        stocks = [self._stock(scenario) for _ in range(FRESH_PASSES)]
        return min(_seconds(self._operation(scenario, stock), self.clock) for stock in stocks) * 1e6

    def _checked(self, scenario: Scenario) -> tuple[Ending, bool]:
        """How the search ends on the last node, and whether that is what is expected."""
        stock = self._stock(scenario)
        answer = allocate(stock, scenario.claims, scenario.nodes[-1], new_share_id=self.new_share_id)
        if isinstance(answer.ending, Solved) is not scenario.found:
            return answer.ending, False
        results = getattr(answer, "results", ())
        devices = tuple(
            f"{device.request}={device.driver}/{device.pool}/{device.device}"
            for result in results
            for device in result.devices.results
        )
        return answer.ending, not scenario.devices or devices == scenario.devices

    def _story(self, scenario: Scenario) -> list[Beat]:
        stock = self._stock(scenario)
        ask = ask_of(scenario.claims, stock.classes.get)
        return list(search(ask, stock.seen_from(scenario.nodes[-1]).shape))


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
