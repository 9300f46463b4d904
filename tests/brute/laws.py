"""The laws of the allocator, each as a function: a problem goes in, complaints come out.

Theory of operation: a `Bench` is a problem with everything made once: the plain answer and the allocator's
view of it. A law looks at a bench and says what is wrong, in words; an empty answer is a law that holds. The
same laws run under hypothesis, in the long run, and against builds that were broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import dray.allocator.requests as wanting
import dray.allocator.search.backtracking as searching
import dray.allocator.verify.claim_rules as refereeing
from dray.allocator.allocate import SuccessfulAllocation, allocate, search_nodes
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.partial_solution import PartialSolution
from dray.allocator.requests import normalize_claims
from dray.allocator.search import candidate_checks
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import Exhausted, Faulted, GaveUp, SearchProgress, Solved, TraceEvent
from dray.allocator.verify import VerificationInput, verify
from dray.errors import UnanswerableClaimError
from tests.brute.dead_ends import accounted, truly_dead
from tests.brute.problem import Problem
from tests.brute.reference_search import ClaimFault, DeviceFault, Picks, PlainSearch, TooLarge
from tests.brute.toy_selectors import GroupingToyEvaluator, evaluate_toy

Answer = tuple[Any, ...]
"""What came out, as a plain value: ("solved", picks), ("none",), ("fault", device) or ("claim fault",)."""


@contextmanager
def limited(devices: int) -> Iterator[None]:
    """Let a claim hold fewer devices than 32, and let every search prune from its first dead end on."""
    modules: tuple[Any, ...] = (searching, wanting, refereeing)
    before = [module.MAX_RESULTS for module in modules]
    work = searching.PRUNING_THRESHOLD
    try:
        for module in modules:
            module.MAX_RESULTS = devices
        searching.PRUNING_THRESHOLD = 0
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.MAX_RESULTS = value
        searching.PRUNING_THRESHOLD = work


def share_ids() -> Callable[[], str]:
    """Share ids in order, so that two runs can be compared."""
    numbers = count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


def plain_answer(problem: Problem) -> Answer:
    """What the plain search says; raises `TooLarge`."""
    try:
        picks = next(PlainSearch(problem).solutions(), None)
    except ClaimFault:
        return ("claim fault",)
    except DeviceFault as fault:
        return ("fault", fault.place)
    return ("none",) if picks is None else ("solved", plain_picks(picks))


def plain_picks(picks: Picks) -> tuple[Any, ...]:
    return tuple((pick.want.claim, pick.want.name, pick.thing.place, pick.consumed) for pick in picks)


def answer_of(view: NodeView, ending: TraceEvent) -> Answer:
    """An ending with names in it, comparable with the plain answer."""
    if isinstance(ending, Exhausted):
        return ("none",)
    if isinstance(ending, Faulted):
        return ("fault", _place(view, ending.candidate))
    assert isinstance(ending, Solved), ending
    picks = []
    for pick in ending.picks:
        consumed = None
        if pick.consumed is not None:
            consumed = tuple(sorted((name, Fraction(n, 10**9)) for name, n in pick.consumed.items()))
        point = pick.point
        picks.append(
            (point.choice.claim_index, point.alternative.name, _place(view, pick.candidate), consumed)
        )
    return ("solved", tuple(picks))


def _place(view: NodeView, candidate: int) -> tuple[str, str, str]:
    pool_view, position = view.locate_device(candidate)
    return (*pool_view.pool, pool_view.names[position])


class Bench:
    """A problem with its plain answer, and the allocator's view of it made anew."""

    def __init__(self, problem: Problem, expected: Answer | None = None) -> None:
        self.problem = problem
        self.expected = plain_answer(problem) if expected is None else expected
        self.inventory = inventory_of(problem)
        self.view = self.inventory.get_node_view(problem.node)
        self.ask: Any = None
        with suppress(UnanswerableClaimError):
            self.ask = normalize_claims(problem.claims, self.inventory.classes.get)

    def events(self, *, prune: bool = True) -> list[TraceEvent]:
        """What a search tells; how often it paused depends on what was known before, so that is left out."""
        if self.ask is None:
            return []
        told = search(self.ask, self.view.shape, prune=prune)
        return [event for event in told if not isinstance(event, SearchProgress)]

    def answer(self, *, prune: bool = True) -> Answer:
        if self.ask is None:
            return ("claim fault",)
        return answer_of(self.view, self.events(prune=prune)[-1])


def inventory_of(problem: Problem) -> DeviceInventory:
    return DeviceInventory(
        problem.slices, problem.classes, DeviceUsage.from_claims(problem.held), GroupingToyEvaluator()
    )


def results_of(problem: Problem, inventory: DeviceInventory | None = None) -> Any:
    """The allocations of a problem, if it has any."""
    try:
        found = allocate(
            inventory or inventory_of(problem), problem.claims, problem.node, new_share_id=share_ids()
        )
    except UnanswerableClaimError:
        return None
    return found.results if isinstance(found, SuccessfulAllocation) else None


# --- the laws ---


def agrees(bench: Bench) -> Iterator[str]:
    """The search finds the first solution of the plain search, or none where there is none."""
    found = bench.answer()
    if found != bench.expected:
        yield f"the plain search says {bench.expected}, the search {found}"


def agrees_without_pruning(bench: Bench) -> Iterator[str]:
    """Pruning changes how long the search takes, not how it ends."""
    found = bench.answer(prune=False)
    if found != bench.expected:
        yield f"the plain search says {bench.expected}, the search without pruning {found}"


def satisfies_the_verifier(bench: Bench) -> Iterator[str]:
    """Every solution is one by the rules."""
    results = results_of(bench.problem)
    if results is not None:
        for finding in verify(given(bench.problem), bench.problem.claims, results):
            yield f"the verifier: {finding}"


def given(problem: Problem) -> VerificationInput:
    return VerificationInput(problem.slices, problem.classes, problem.held, problem.node, evaluate_toy)


def order_does_not_matter(bench: Bench) -> Iterator[str]:
    """Slices, classes and holders in another order give the same allocation."""
    mixed = bench.problem.shuffled(Random(1))
    if results_of(bench.problem) != results_of(mixed):
        yield "another order of the input gives another allocation"
    if bench.ask is not None and images(bench.events()) != images(Bench(mixed, bench.expected).events()):
        yield "another order of the input gives another trace"


def repeats_itself(bench: Bench) -> Iterator[str]:
    """The same problem has the same trace, searched once, twice, or with a new inventory."""
    first = images(bench.events())
    if first != images(bench.events()):
        yield "the second search has another trace"
    if first != images(Bench(bench.problem, bench.expected).events()):
        yield "a new inventory gives another trace"


def images(events: list[TraceEvent]) -> list[str]:
    """Events as comparable values: alternatives and choices by name."""
    return [_image(event) for event in events]


def _image(event: Any) -> str:
    told = {name: getattr(event, name) for name in event.__struct_fields__}
    picks = [told.pop("pick")] if "pick" in told else told.pop("picks", ())
    points = [pick.point for pick in picks] + ([told.pop("point")] if "point" in told else [])
    places = [(point.choice.index, point.alternative.name, point.device_index) for point in points]
    taken = [(pick.candidate, sorted((pick.consumed or {}).items())) for pick in picks]
    return f"{type(event).__name__} {places} {taken} {sorted(told.items(), key=str)}"


def leaves_inputs_alone(bench: Bench) -> Iterator[str]:
    """Nothing that came in was changed."""
    before = bench.problem.text()
    results_of(bench.problem)
    if bench.problem.text() != before:
        yield "the search changed its input"


def copy_facts(solution: PartialSolution) -> dict[str, dict[Any, Any]]:
    """The tables of a partial solution as they are now."""
    names = [name for name in PartialSolution.__slots__ if name != "undo_log"]
    return {name: dict(getattr(solution, name)) for name in names}


class WatchedSolution(PartialSolution):
    """A partial solution that keeps a copy of its facts for every length of its undo log."""

    __slots__ = ("complaints", "copies")

    made: list[WatchedSolution] = []

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, dict[str, dict[Any, Any]]] = {}
        self.complaints: list[str] = []
        WatchedSolution.made.append(self)

    def assign(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self.copies[len(self.undo_log)] = copy_facts(self)
        super().assign(table, key, value)

    def rewind(self, mark: int) -> None:
        now = copy_facts(self)
        expected = self.copies.get(mark, now) if len(self.undo_log) > mark else now
        super().rewind(mark)
        if copy_facts(self) != expected:
            self.complaints.append(f"rewinding to {mark} gives {copy_facts(self)}, it was {expected}")


def restores_the_partial_solution(bench: Bench) -> Iterator[str]:
    """Every rewind restores exactly the facts from before; at the end no fact is left."""
    WatchedSolution.made = []
    with patch.object(candidate_checks, "PartialSolution", WatchedSolution):
        events = bench.events()
    for solution in WatchedSolution.made:
        yield from solution.complaints
        left = {name: table for name, table in copy_facts(solution).items() if table}
        if events and isinstance(events[-1], Exhausted) and (left or solution.undo_log):
            yield f"after a search without a result the partial solution still holds {left}"


def accounts_for_every_option(bench: Bench) -> Iterator[str]:
    """A dead end says of every candidate why it was not taken there."""
    if bench.ask is not None:
        yield from accounted(bench.ask, bench.view, bench.events(prune=False))


def dead_ends_are_dead(bench: Bench) -> Iterator[str]:
    """No solution of the plain search goes through a dead end."""
    if bench.ask is not None and bench.expected[0] in ("none", "solved"):
        for prune in (True, False):
            yield from truly_dead(bench.problem, bench.view, bench.events(prune=prune))


def nodes_do_not_mix(bench: Bench) -> Iterator[str]:
    """Nodes that share a inventory, and perhaps a shape, each get the answer they would get alone."""
    problem = bench.problem
    if bench.ask is None or len(problem.nodes) < 2:
        return
    one = {node.metadata.name: problem.seen_from(node) for node in problem.nodes}
    for view, ending in search_nodes(bench.inventory, bench.ask, problem.nodes):
        alone = one[view.node.metadata.name]
        if answer_of(view, ending) != plain_answer(alone):
            yield f"{view.node.metadata.name}: {answer_of(view, ending)}, alone {plain_answer(alone)}"
    for name, alone in one.items():
        results = results_of(alone, bench.inventory)
        if results is not None:
            for finding in verify(given(alone), problem.claims, results):
                yield f"{name}: the verifier: {finding}"


Law = Callable[[Bench], Iterator[str]]

LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        agrees,
        agrees_without_pruning,
        satisfies_the_verifier,
        order_does_not_matter,
        repeats_itself,
        leaves_inputs_alone,
        restores_the_partial_solution,
        accounts_for_every_option,
        dead_ends_are_dead,
        nodes_do_not_mix,
    )
}
"""Every law by name."""


WALK = 20_000
"""Steps of a search without pruning before it counts as too long."""


def broken_on_large(problem: Problem) -> tuple[str, list[str]]:
    """How a large problem ends, and what is wrong with that.

    Here the search without pruning stands in for the plain one, with which it agrees on small problems.
    """
    with limited(problem.limit):
        bench = Bench(problem, ("too long without pruning",))
        if bench.ask is None:
            return "claim fault", []
        *_, plain = search(bench.ask, bench.view.shape, WALK, prune=False)
        laws = [satisfies_the_verifier, restores_the_partial_solution]
        if not isinstance(plain, GaveUp):
            bench.expected = answer_of(bench.view, plain)
            laws.append(agrees)
        return bench.expected[0], [f"{law.__name__}: {text}" for law in laws for text in _asked(law, bench)]


def broken_laws(
    problem: Problem, expected: Answer | None = None, laws: Mapping[str, Law] = LAWS
) -> list[str]:
    """What is wrong with the allocator's handling of a problem; raises `TooLarge`."""
    with limited(problem.limit):
        try:
            bench = Bench(problem, expected)
        except TooLarge:
            raise
        except Exception as crash:
            return [f"crashed: {crash!r}"]
        return [f"{name}: {complaint}" for name, law in laws.items() for complaint in _asked(law, bench)]


def _asked(law: Law, bench: Bench) -> list[str]:
    """What a law says; a crash breaks every law."""
    try:
        return list(law(bench))
    except TooLarge:
        raise
    except Exception as crash:
        return [f"crashed: {crash!r}"]
