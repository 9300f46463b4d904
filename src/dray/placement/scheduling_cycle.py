"""One cycle: a pod and a photograph of the cluster go in, a node with devices or reasons why not come out.

Theory of operation: every plugin forms its opinion of the pod; together they narrow the nodes by name, then
every group of seats that are alike is judged once by each filter, until one says no. What is left is scored,
again by group; each plugin's scores are brought to 0..100 and weighed, and the best seat wins. Among equals
`turn` decides, so that pods of one kind spread over nodes of one kind. In a cluster of very many different
nodes the walk ends when enough nodes are found, as in Kubernetes, and starts elsewhere next time.

A plugin that needs more time than one decision has says `unfinished`. A node that everybody accepts is taken
all the same, unless that plugin scores nodes, too: then nothing is decided yet.

Rules for this file: no plugin is known by name here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dray.api.core import Node
from dray.placement.framework import Given, Opinion, Phase, Plugin
from dray.placement.pending_pod import Subject
from dray.placement.profile import Profile
from dray.placement.rejections import Signal, Topic, Verdict
from dray.placement.snapshot import Group, Seat, Snapshot

MANY_GROUPS: Final = 100
"""Groups that are always judged, however many nodes have been found."""
FEWEST: Final = 100
"""Nodes that are always enough to choose from, and never too many to look for."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A verdict and the nodes it is about; no names mean the whole cluster."""

    verdict: Verdict
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A node for a pod, and the devices its claims get there."""

    subject: Subject
    seat: Seat
    given: tuple[Given, ...] = ()
    others: tuple[str, ...] = ()
    """Further nodes that would do, best first."""

    @property
    def node(self) -> Node:
        return self.seat.node


@dataclass(frozen=True, slots=True, eq=False)
class Unplaceable:
    """No node for a pod: who said no, where."""

    subject: Subject
    refused: tuple[Refused, ...]
    snapshot: Snapshot

    @property
    def wakes(self) -> frozenset[Signal]:
        """What could change one of the verdicts; where nobody was asked, a first node."""
        if not self.refused:
            return frozenset({Signal(Topic.NODES)})
        return frozenset().union(*(each.verdict.wakes for each in self.refused))

    @property
    def again(self) -> bool:
        """Whether it is worth trying again although nothing changes."""
        return any(each.verdict.again for each in self.refused)

    @property
    def unfinished(self) -> bool:
        """Whether a plugin has not judged every node yet, so that nothing is decided."""
        return any(each.verdict.unfinished for each in self.refused)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Tells how long each plugin took for each phase."""

    now: Callable[[], float]
    spent: Callable[[str, Phase, float], None]


def place(
    snapshot: Snapshot,
    subject: Subject,
    profile: Profile,
    *,
    turn: int = 0,
    stopwatch: Stopwatch | None = None,
) -> Placement | Unplaceable:
    """The best node for a pod, or why there is none."""
    opinions = _opinions(snapshot, subject, profile, stopwatch)
    if isinstance(opinions, Verdict):
        return Unplaceable(subject, (Refused(opinions),), snapshot)
    walk = _Walk(snapshot, opinions, stopwatch)
    # Drivers of classic claims are asked about the same nodes until they answer, not about others each time.
    rows = walk.judged(turn, everything=bool(subject.classic))
    if not rows or _is_waited_for(walk.unfinished, opinions):
        return Unplaceable(subject, tuple(walk.told()), snapshot)
    ranked = _ranked(rows, opinions, stopwatch)
    best = [row for row in ranked if row.score == ranked[0].score]
    chosen = _nth(best, turn)
    given = [each for held in opinions if held.opinion.reserve for each in held.opinion.reserve(chosen)]
    others = _names(ranked, chosen.name) if subject.classic else ()
    return Placement(subject, chosen, tuple(given), others)


def _is_waited_for(unfinished: set[str], opinions: Sequence[_Held]) -> bool:
    """Whether a plugin that has not judged every node scores them: the best may be among those."""
    return bool(unfinished) and any(
        held.opinion.score is not None and held.plugin.name in unfinished for held in opinions
    )


def refusals(snapshot: Snapshot, subject: Subject, profile: Profile) -> tuple[Refused, ...]:
    """Who says no where, whether or not some node would do; for explanations."""
    opinions = _opinions(snapshot, subject, profile, None)
    if isinstance(opinions, Verdict):
        return (Refused(opinions),)
    walk = _Walk(snapshot, opinions, None)
    walk.judged(0, everything=True)
    return tuple(walk.told())


@dataclass(frozen=True, slots=True)
class _Held:
    """An opinion with whose it is and what it weighs."""

    plugin: Plugin
    weight: int
    opinion: Opinion


def _opinions(
    snapshot: Snapshot, subject: Subject, profile: Profile, stopwatch: Stopwatch | None
) -> list[_Held] | Verdict:
    found: list[_Held] = []
    for plugin, weight in profile.plugins:
        began = stopwatch.now() if stopwatch is not None else 0.0
        opinion = plugin.opinion(subject, snapshot)
        if stopwatch is not None:
            stopwatch.spent(plugin.name, Phase.PRE_FILTER, stopwatch.now() - began)
        if isinstance(opinion, Verdict):
            return opinion
        if opinion is not None:
            found.append(_Held(plugin, weight, opinion))
    return found


@dataclass(slots=True)
class _Row:
    """Seats that are alike to everybody, and their score."""

    seats: Group
    score: int = 0

    @property
    def sample(self) -> Seat:
        return next(iter(self.seats.values()))


class _Walk:
    """The nodes in question, judged group by group."""

    def __init__(self, snapshot: Snapshot, opinions: Sequence[_Held], stopwatch: Stopwatch | None) -> None:
        self._snapshot = snapshot
        self._opinions = opinions
        filters = [(held.opinion.by_node, asked) for held in opinions if (asked := _filter(held, stopwatch))]
        self._alike = [asked for by_node, asked in filters if not by_node]
        self._apart = [asked for by_node, asked in filters if by_node]
        self._refused: list[tuple[Verdict, Iterable[str]]] = []
        self.unfinished: set[str] = set()
        """The plugins that have not judged every node yet."""

    def judged(self, turn: int, *, everything: bool = False) -> list[_Row]:
        """The groups, or parts of them, that nobody refuses; enough of them, or `everything`."""
        rows: list[_Row] = []
        found, total = 0, len(self._snapshot.seats)
        for count, group in enumerate(_from(self._in_question(), turn)):
            if not everything and count >= MANY_GROUPS and found >= enough(total):
                break
            verdict = _first_no(self._alike, next(iter(group.values())))
            if verdict is not None:
                self._refuse(verdict, group)
                continue
            seats = self._one_by_one(group) if self._apart else group
            if seats:
                rows.append(_Row(seats))
                found += len(seats)
        return rows

    def told(self) -> Iterator[Refused]:
        """Who said no where; nodes that several refused are told with the first who did."""
        names: dict[Verdict, list[str]] = {}
        kept: Iterable[str] = self._snapshot.seats
        for held in self._opinions:
            if held.opinion.names is not None:
                kept, outside = _split(kept, held.opinion.names)
                if outside and held.opinion.elsewhere is not None:
                    names.setdefault(held.opinion.elsewhere, []).extend(outside)
        for verdict, nodes in self._refused:
            names.setdefault(verdict, []).extend(nodes)
        for verdict, nodes_ in names.items():
            yield Refused(verdict, tuple(sorted(nodes_)))

    def _in_question(self) -> Sequence[Group]:
        """The groups, without the nodes that an opinion leaves out by name."""
        narrowed = [held.opinion.names for held in self._opinions if held.opinion.names is not None]
        if not narrowed:
            return list(self._snapshot.groups.values())
        names = frozenset.intersection(*narrowed)
        groups: dict[object, dict[str, Seat]] = {}
        for name in sorted(names):
            seat = self._snapshot.seats.get(name)
            if seat is not None:
                groups.setdefault(seat.likeness, {})[name] = seat
        return list(groups.values())

    def _one_by_one(self, group: Group) -> Group:
        """The seats of a group that filters which look at names or labels do not refuse."""
        kept: dict[str, Seat] = {}
        for name, seat in group.items():
            verdict = _first_no(self._apart, seat)
            if verdict is None:
                kept[name] = seat
            else:
                self._refuse(verdict, (name,))
        return kept

    def _refuse(self, verdict: Verdict, nodes: Iterable[str]) -> None:
        self._refused.append((verdict, nodes))
        if verdict.unfinished:
            self.unfinished.add(verdict.plugin)


_Filter = Callable[[Seat], Verdict | None]


def _first_no(filters: Sequence[_Filter], seat: Seat) -> Verdict | None:
    for asked in filters:
        verdict = asked(seat)
        if verdict is not None:
            return verdict
    return None


def _filter(held: _Held, stopwatch: Stopwatch | None) -> _Filter | None:
    """The filter of an opinion; timed when there is a stopwatch."""
    ask = held.opinion.filter
    if stopwatch is None or ask is None:
        return ask

    def timed(seat: Seat) -> Verdict | None:
        began = stopwatch.now()
        verdict = ask(seat)
        stopwatch.spent(held.plugin.name, Phase.FILTER, stopwatch.now() - began)
        return verdict

    return timed


def enough(nodes: int) -> int:
    """How many nodes that would do are enough to choose from, as Kubernetes reckons it."""
    percent = max(50 - nodes // 125, 5)
    return max(nodes * percent // 100, FEWEST)


def _split(names: Iterable[str], kept: frozenset[str]) -> tuple[list[str], list[str]]:
    inside: list[str] = []
    outside: list[str] = []
    for name in names:
        (inside if name in kept else outside).append(name)
    return inside, outside


def _from(groups: Sequence[Group], turn: int) -> Iterator[Group]:
    """All groups, beginning elsewhere each time when there are more than are always judged."""
    start = turn % len(groups) if len(groups) > MANY_GROUPS else 0
    yield from groups[start:]
    yield from groups[:start]


def _ranked(rows: list[_Row], opinions: Sequence[_Held], stopwatch: Stopwatch | None) -> list[_Row]:
    """The rows with their scores, best first."""
    scoring = [held for held in opinions if held.opinion.score is not None]
    rows = _parted(rows, [held.opinion for held in scoring if held.opinion.by_node])
    if len(rows) == 1:
        return rows
    samples = [row.sample for row in rows]
    for held in scoring:
        assert held.opinion.score is not None
        began = stopwatch.now() if stopwatch is not None else 0.0
        scores = held.opinion.spread([held.opinion.score(sample) for sample in samples])
        if stopwatch is not None:
            stopwatch.spent(held.plugin.name, Phase.SCORE, stopwatch.now() - began)
        for row, score in zip(rows, scores, strict=True):
            row.score += held.weight * score
    return sorted(rows, key=lambda row: -row.score)


def _parted(rows: list[_Row], opinions: Sequence[Opinion]) -> list[_Row]:
    """The rows, parted where opinions that look at names or labels tell seats apart."""
    scores = [opinion.score for opinion in opinions if opinion.score is not None]
    if not scores:
        return rows
    parts: list[_Row] = []
    for row in rows:
        alike: dict[tuple[int, ...], dict[str, Seat]] = {}
        for name, seat in row.seats.items():
            alike.setdefault(tuple([score(seat) for score in scores]), {})[name] = seat
        parts += map(_Row, alike.values())
    return parts


def _nth(rows: Sequence[_Row], turn: int) -> Seat:
    """One seat of those rows, another one each time."""
    left = turn % sum(len(row.seats) for row in rows)
    for row in rows:
        if left < len(row.seats):
            return next(islice(row.seats.values(), left, None))
        left -= len(row.seats)
    raise IndexError(turn)


def _names(rows: Iterable[_Row], chosen: str) -> tuple[str, ...]:
    return tuple(name for row in rows for name in row.seats if name != chosen)
