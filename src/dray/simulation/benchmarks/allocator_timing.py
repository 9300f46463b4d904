"""Timing the allocator: how long an answer takes, beside a reference, and what the story of it costs.

Theory of operation: an operation is what a scheduler does for one pod: normalise its claims, search (on one
node, or over all of them with one search per shape) and assemble results for the node that was chosen. Three
times are measured, each the best of several, because on a shared machine the rest is somebody else's time:

- *first*: a claim nobody asked before. The slices are prepared, as they are kept between pods, and the
  expressions are compiled, as they are in the reference. Every repetition has a stock of its own and claims
  decoded once more, both made outside of the measured time, so that nothing can be remembered of them.
- *repeated*: the same claims on the same stock again, as for the second of many equal pods.
- *cold*: everything, from slices that nobody prepared and expressions that nobody compiled.

Reference times are scaled by calibration: the same loop is run here, and the machine that takes twice as long
for it is granted twice the time.

What beats cost is measured by telling them again: the beats of a search are recorded, then built and yielded
once more by a generator that does nothing else. Nothing but the telling remains, so its share of the time of
the whole search is what the story adds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil

from dray.allocator.allocate import Allocated, allocate, survey
from dray.allocator.allocation_results import assemble
from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.device_profiles import Judge
from dray.allocator.inventory.selector_evaluator import Selectors
from dray.allocator.requests import Ask, ask_of
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import Beat, DeadEnd, GaveUp, Point, Solved, Took
from dray.api.core import Node
from dray.api.devices.device_cel import compile_anew, compile_stored
from dray.api.resource import ResourceClaim
from dray.errors import AllocationFault
from dray.simulation.benchmarks.scenarios import Reference, Scenario
from dray.simulation.vectors.answers import Kind
from dray.simulation.vectors.comparison import judge_answer
from dray.simulation.vectors.vector import answer

Clock = Callable[[], float]

PASS_SECONDS = 0.0006
PASSES = 40
FIRSTS = 6
ROUNDS = 4
"""Many short passes, in rounds over everything: the best one is the one that nobody disturbed."""

PATIENCE = 2.0
"""Seconds after which one scenario is measured no further, once each of its times is known."""

LOOP, LOOP_PIECES = 3_000_000, 500
"""The calibration loop of the reference, and the pieces it is timed in."""

LEAST_CALIBRATIONS = 7
"""How often the loop is timed at the least; the reference took the best of as many."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario, in a word, and whether it is what was expected."""

    word: str
    right: bool
    steps: int = 0
    gave_up: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """One scenario, measured. Times are microseconds; `reference` is scaled to this machine."""

    scenario: Scenario
    outcome: Outcome
    first: float
    repeated: float
    cold: float
    reference: float | None = None
    telling: float = 0.0

    @property
    def first_ratio(self) -> float | None:
        """The first answer in terms of the reference; below one is faster."""
        return None if self.reference is None else self.first / self.reference

    @property
    def repeated_ratio(self) -> float | None:
        """A repeated answer in terms of the reference; below one is faster."""
        return None if self.reference is None else self.repeated / self.reference

    @property
    def story_share(self) -> float:
        """What telling adds to searching, as a fraction; nothing where the search is not timed alone."""
        return self.telling / (self.repeated - self.telling) if self.telling else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the values do not exceed; there must be one."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


class Calibration:
    """How long the loop of the reference takes here; the best time of each of its pieces counts."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._best = [float("inf")] * LOOP_PIECES
        self._runs = 0

    def finish(self) -> None:
        """Time the loop until it was timed often enough to be compared."""
        while self._runs < LEAST_CALIBRATIONS:
            self.run()

    def run(self) -> None:
        """Time every piece once more."""
        self._runs += 1
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


def _micros(work: Callable[[], object], clock: Clock) -> float:
    return _seconds(work, clock) * 1e6


class Trial:
    """One scenario while it is being measured; every round may find a better time."""

    def __init__(
        self, scenario: Scenario, new_share_id: Callable[[], str], clock: Clock = time.perf_counter
    ) -> None:
        self._scenario = scenario
        self._new_share_id = new_share_id
        self._clock = clock
        self._spent = 0.0
        self._stock = self._prepared()
        self._first = self._repeated = self._cold = self._telling = float("inf")
        self._retell: Callable[[], object] | None = None
        try:
            ask = ask_of(scenario.claims, self._stock.classes.get)
        except AllocationFault:
            return
        _compile_all(ask)
        if scenario.kind == "micro":
            story = list(search(ask, self._stock.seen_from(scenario.nodes[-1]).shape))
            self._retell = _retelling(story)

    def run(self) -> None:
        """Measure for a while; not again when the scenario is one that takes long."""
        if self._spent > PATIENCE:
            return
        start = self._clock()
        self._cold = min(self._cold, _micros(self._measure_cold(), self._clock))
        self._first = min(self._first, self._measure_first())
        self._repeated = min(self._repeated, self._warm(self._operation(self._stock, self._scenario.claims)))
        if self._retell is not None:
            self._telling = min(self._telling, self._warm(self._retell))
        self._spent += self._clock() - start

    def timing(self, reference: Reference, calibration: float) -> Timing:
        """What was found, beside the reference."""
        scaled = reference.scaled(self._scenario, calibration)
        telling = 0.0 if self._retell is None else self._telling
        return Timing(
            self._scenario, self._outcome(), self._first, self._repeated, self._cold, scaled, telling
        )

    def _prepared(self) -> Stock:
        """A stock of its own, with everything prepared that does not depend on the claims."""
        stock = self._scenario.stock(Selectors(compile_stored))
        for node in self._scenario.nodes:
            stock.seen_from(node)
        return stock

    def _measure_cold(self) -> Callable[[], object]:
        claims, scenario = self._scenario.fresh_claims(), self._scenario

        def work() -> None:
            judge: Judge = Selectors(cache(compile_anew))
            self._operation(scenario.stock(judge), claims)()

        return work

    def _measure_first(self) -> float:
        """Microseconds of the first answer, the best of several stocks."""
        best, start = float("inf"), self._clock()
        for _ in range(FIRSTS):
            stock, claims = self._prepared(), self._scenario.fresh_claims()
            best = min(best, _micros(self._operation(stock, claims), self._clock))
            if self._clock() - start > PATIENCE:
                break
        return best

    def _operation(self, stock: Stock, claims: Sequence[ResourceClaim]) -> Callable[[], object]:
        """What is timed: one pod, from its claims to their allocations."""
        nodes, new_share_id = self._scenario.nodes, self._new_share_id
        if self._scenario.kind == "nodes":
            return partial(_cycle, stock, claims, nodes, new_share_id)
        (node,) = nodes

        def attempt() -> object:
            try:
                return allocate(stock, claims, node, new_share_id=new_share_id)
            except AllocationFault:
                return None

        return attempt

    def _warm(self, work: Callable[[], object]) -> float:
        """Microseconds per call, best of several passes over a prepared stock."""
        start = self._clock()
        work()
        once = max(_seconds(work, self._clock), 1e-7)
        times = max(1, int(PASS_SECONDS / once))

        def many() -> None:
            for _ in range(times):
                work()

        best = once * times
        for _ in range(PASSES):
            if self._clock() - start > PATIENCE:
                break
            best = min(best, _seconds(many, self._clock))
        return best / times * 1e6

    def _outcome(self) -> Outcome:
        """How the search ends on the last node, and whether that is what is expected."""
        scenario = self._scenario
        if scenario.vector is not None:
            judge = Selectors(compile_stored)
            ours = answer(scenario.vector, judge)
            verdict = judge_answer(scenario.vector, ours, judge)
            return Outcome(ours.kind.value, verdict.good, gave_up=ours.kind is Kind.GAVE_UP)
        got = allocate(self._stock, scenario.claims, scenario.nodes[-1], new_share_id=self._new_share_id)
        if isinstance(got.ending, GaveUp):
            return Outcome("gave up", False, got.ending.steps, gave_up=True)
        word = "found" if isinstance(got.ending, Solved) else "none"
        if isinstance(got.ending, Solved) is not scenario.found:
            return Outcome(word, False, got.ending.steps)
        results = got.results if isinstance(got, Allocated) else ()
        devices = tuple(
            f"{device.request}={device.driver}/{device.pool}/{device.device}"
            for result in results
            for device in result.devices.results
        )
        right = not scenario.devices or devices == scenario.devices
        return Outcome(word, right, got.ending.steps)


def _compile_all(ask: Ask) -> None:
    """Compile every expression that the claims can meet, as the reference had done."""
    for choice in ask.choices:
        for want in choice.wants:
            for _owner, expression in want.selectors:
                compile_stored(expression)


def _cycle(
    stock: Stock, claims: Sequence[ResourceClaim], nodes: Sequence[Node], new_share_id: Callable[[], str]
) -> object:
    """One pod over all nodes: a search per shape, and results for the first node that fits."""
    ask = ask_of(claims, stock.classes.get)
    best = None
    for view, ending in survey(stock, ask, nodes):
        if best is None and isinstance(ending, Solved):
            best = view, ending
    if best is None:
        return None
    view, solved = best
    return assemble(ask, view, solved.picks, new_share_id=new_share_id)


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
