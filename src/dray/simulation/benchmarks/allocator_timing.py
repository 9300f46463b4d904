"""Timing of the allocator: how long an answer takes, compared with a reference, and what the trace costs.

Theory of operation: an operation is what a scheduler does for one pod: normalise its claims, search (on one
node, or over all of them with one search per shape) and build results for the chosen node. Three times are
measured, each the best of several, because on a shared machine the rest is time of other processes:

- *first*: claims that were never asked before. The slices are prepared, as they are kept between pods, and
  the expressions are compiled, as they are in the reference. Every repetition has an inventory of its own and
  newly decoded claims, both built outside of the measured time, so that no cache helps.
- *repeated*: the same claims on the same inventory again, as for the second of many equal pods.
- *cold*: everything, from unprepared slices and uncompiled expressions.

Reference times are scaled by calibration: the same loop runs here, and a machine that takes twice as long for
it is allowed twice the time.

The cost of trace events is measured by replaying them: the events of a search are recorded, then built and
yielded once more by a generator that does nothing else. Its share of the time of the whole search is the cost
of the trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil

from dray.allocator.allocate import SuccessfulAllocation, allocate, search_nodes
from dray.allocator.allocation_results import build_allocations
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.inventory.selector_evaluator import CelSelectorEvaluator
from dray.allocator.requests import AllocationRequest, normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import CandidateTaken, DeadEnd, GaveUp, SearchPoint, Solved, TraceEvent
from dray.api.core import Node
from dray.api.devices.device_cel import compile_stored_selector, compile_uncached
from dray.api.resource import ResourceClaim
from dray.errors import UnanswerableClaimError
from dray.simulation.benchmarks.scenarios import ReferenceTimes, Scenario
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.comparison import compare_answer
from dray.simulation.vectors.vector import answer_vector

Clock = Callable[[], float]

PASS_SECONDS = 0.0006
PASSES = 40
FIRST_RUNS = 6
ROUNDS = 4
"""Many short passes, in rounds over everything: the best one is the one that nobody disturbed."""

MAX_SCENARIO_SECONDS = 2.0
"""Seconds after which one scenario is measured no further, once each of its times is known."""

LOOP, LOOP_PIECES = 3_000_000, 500
"""The calibration loop of the reference, and the pieces it is timed in."""

MIN_CALIBRATIONS = 7
"""How often the loop is timed at the least; the reference took the best of as many."""


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """What came of a scenario, in a word, and whether it is what was expected."""

    result: str
    expected: bool
    steps: int = 0
    gave_up: bool = False


@dataclass(frozen=True, slots=True)
class ScenarioTiming:
    """One scenario, measured. Times are microseconds; `reference` is scaled to this machine."""

    scenario: Scenario
    outcome: ScenarioOutcome
    first: float
    repeated: float
    cold: float
    reference: float | None = None
    trace_time: float = 0.0

    @property
    def first_ratio(self) -> float | None:
        """The first answer in terms of the reference; below one is faster."""
        return None if self.reference is None else self.first / self.reference

    @property
    def repeated_ratio(self) -> float | None:
        """A repeated answer in terms of the reference; below one is faster."""
        return None if self.reference is None else self.repeated / self.reference

    @property
    def trace_share(self) -> float:
        """What telling adds to searching, as a fraction; nothing where the search is not timed alone."""
        return self.trace_time / (self.repeated - self.trace_time) if self.trace_time else 0.0


def compute_percentile(values: Sequence[float], percent: float) -> float:
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
        while self._runs < MIN_CALIBRATIONS:
            self.run()

    def run(self) -> None:
        """Time every piece once more."""
        self._runs += 1
        size = LOOP // LOOP_PIECES
        for piece, known in enumerate(self._best):
            work = partial(_run_loop, piece * size, (piece + 1) * size)
            self._best[piece] = min(known, _measure_seconds(work, self._clock))

    @property
    def seconds(self) -> float:
        """The whole loop, as far as it was timed."""
        return sum(self._best)


def _run_loop(start: int, end: int) -> int:
    s = 0
    for i in range(start, end):
        s += i * i % 7
    return s


def _measure_seconds(work: Callable[[], object], clock: Clock) -> float:
    start = clock()
    work()
    return clock() - start


def _measure_micros(work: Callable[[], object], clock: Clock) -> float:
    return _measure_seconds(work, clock) * 1e6


class ScenarioRun:
    """One scenario while it is being measured; every round may find a better time."""

    def __init__(
        self, scenario: Scenario, new_share_id: Callable[[], str], clock: Clock = time.perf_counter
    ) -> None:
        self._scenario = scenario
        self._new_share_id = new_share_id
        self._clock = clock
        self._spent = 0.0
        self._inventory = self._prepare_inventory()
        self._first = self._repeated = self._cold = self._trace_time = float("inf")
        self._replay_trace: Callable[[], object] | None = None
        try:
            allocation_request = normalize_claims(scenario.claims, self._inventory.classes.get)
        except UnanswerableClaimError:
            return
        _compile_all(allocation_request)
        if scenario.kind == "micro":
            trace = list(search(allocation_request, self._inventory.get_node_view(scenario.nodes[-1]).shape))
            self._replay_trace = _build_trace_replay(trace)

    def run(self) -> None:
        """Measure for a while; not again when the scenario is one that takes long."""
        if self._spent > MAX_SCENARIO_SECONDS:
            return
        start = self._clock()
        self._cold = min(self._cold, _measure_micros(self._build_cold_run(), self._clock))
        self._first = min(self._first, self._measure_first())
        self._repeated = min(
            self._repeated, self._measure_warm(self._build_operation(self._inventory, self._scenario.claims))
        )
        if self._replay_trace is not None:
            self._trace_time = min(self._trace_time, self._measure_warm(self._replay_trace))
        self._spent += self._clock() - start

    def build_timing(self, reference: ReferenceTimes, calibration: float) -> ScenarioTiming:
        """What was found, beside the reference."""
        scaled = reference.scale_time(self._scenario, calibration)
        telling = 0.0 if self._replay_trace is None else self._trace_time
        return ScenarioTiming(
            self._scenario, self._check_outcome(), self._first, self._repeated, self._cold, scaled, telling
        )

    def _prepare_inventory(self) -> DeviceInventory:
        """A stock of its own, with everything prepared that does not depend on the claims."""
        inventory = self._scenario.build_inventory(CelSelectorEvaluator(compile_stored_selector))
        for node in self._scenario.nodes:
            inventory.get_node_view(node)
        return inventory

    def _build_cold_run(self) -> Callable[[], object]:
        claims, scenario = self._scenario.decode_claims(), self._scenario

        def work() -> None:
            evaluator: DeviceSelectorEvaluator = CelSelectorEvaluator(cache(compile_uncached))
            self._build_operation(scenario.build_inventory(evaluator), claims)()

        return work

    def _measure_first(self) -> float:
        """Microseconds of the first answer, the best of several inventories."""
        best, start = float("inf"), self._clock()
        for _ in range(FIRST_RUNS):
            inventory, claims = self._prepare_inventory(), self._scenario.decode_claims()
            best = min(best, _measure_micros(self._build_operation(inventory, claims), self._clock))
            if self._clock() - start > MAX_SCENARIO_SECONDS:
                break
        return best

    def _build_operation(
        self, inventory: DeviceInventory, claims: Sequence[ResourceClaim]
    ) -> Callable[[], object]:
        """What is timed: one pod, from its claims to their allocations."""
        nodes, new_share_id = self._scenario.nodes, self._new_share_id
        if self._scenario.kind == "nodes":
            return partial(_run_cycle, inventory, claims, nodes, new_share_id)
        (node,) = nodes

        def attempt() -> object:
            try:
                return allocate(inventory, claims, node, new_share_id=new_share_id)
            except UnanswerableClaimError:
                return None

        return attempt

    def _measure_warm(self, work: Callable[[], object]) -> float:
        """Microseconds per call, best of several passes over a prepared stock."""
        start = self._clock()
        work()
        once = max(_measure_seconds(work, self._clock), 1e-7)
        times = max(1, int(PASS_SECONDS / once))

        def many() -> None:
            for _ in range(times):
                work()

        best = once * times
        for _ in range(PASSES):
            if self._clock() - start > MAX_SCENARIO_SECONDS:
                break
            best = min(best, _measure_seconds(many, self._clock))
        return best / times * 1e6

    def _check_outcome(self) -> ScenarioOutcome:
        """How the search ends on the last node, and whether that is what is expected."""
        scenario = self._scenario
        if scenario.vector is not None:
            evaluator = CelSelectorEvaluator(compile_stored_selector)
            ours = answer_vector(scenario.vector, evaluator)
            verdict = compare_answer(scenario.vector, ours, evaluator)
            return ScenarioOutcome(ours.kind.value, verdict.is_good, gave_up=ours.kind is AnswerKind.GAVE_UP)
        got = allocate(self._inventory, scenario.claims, scenario.nodes[-1], new_share_id=self._new_share_id)
        if isinstance(got.ending, GaveUp):
            return ScenarioOutcome("gave up", False, got.ending.steps, gave_up=True)
        word = "found" if isinstance(got.ending, Solved) else "none"
        if isinstance(got.ending, Solved) is not scenario.found:
            return ScenarioOutcome(word, False, got.ending.steps)
        results = got.results if isinstance(got, SuccessfulAllocation) else ()
        devices = tuple(
            f"{device.request}={device.driver}/{device.pool}/{device.device}"
            for result in results
            for device in result.devices.results
        )
        right = not scenario.devices or devices == scenario.devices
        return ScenarioOutcome(word, right, got.ending.steps)


def _compile_all(allocation_request: AllocationRequest) -> None:
    """Compile every expression that the claims can meet, as the reference had done."""
    for choice in allocation_request.choices:
        for alternative in choice.alternatives:
            for _owner, expression in alternative.selectors:
                compile_stored_selector(expression)


def _run_cycle(
    inventory: DeviceInventory,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[Node],
    new_share_id: Callable[[], str],
) -> object:
    """One pod over all nodes: a search per shape, and results for the first node that fits."""
    allocation_request = normalize_claims(claims, inventory.classes.get)
    best = None
    for view, ending in search_nodes(inventory, allocation_request, nodes):
        if best is None and isinstance(ending, Solved):
            best = view, ending
    if best is None:
        return None
    view, solved = best
    return build_allocations(allocation_request, view, solved.picks, new_share_id=new_share_id)


def _build_trace_replay(trace: list[TraceEvent]) -> Callable[[], object]:
    """Work that builds and yields the trace events of a trace once more, and does nothing else."""
    took = [event for event in trace if isinstance(event, CandidateTaken)]
    dead = [event for event in trace if isinstance(event, DeadEnd)]
    picks = [(event.pick, list(event.refused)) for event in took]
    ends = [
        (
            event.point.choice,
            event.point.alternative,
            event.point.device_index,
            list(event.refused),
            event.blocker,
        )
        for event in dead
    ]
    ending = trace[-1]

    def replay_events() -> Iterator[TraceEvent]:
        for pick, refused in picks:
            yield CandidateTaken(pick, tuple(refused))
        for choice, alternative, nth, refused, short in ends:
            yield DeadEnd(SearchPoint(choice, alternative, nth), tuple(refused), short)
        yield ending

    def drain() -> None:
        for _ in replay_events():
            pass

    return drain
