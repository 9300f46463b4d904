"""One story per kind of node: what was found, where it ended, what stood in the way.

Here a tale (numbers and points) and a witness (names) come together. Which of several nodes is *closest* is
decided here, too: the one that satisfied most requests, then found most devices for the next; then one whose
devices can all be judged; then the one with a device that failed a later rule, or came nearer to a selector;
then the one with fewer refusals; then the first by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dray.allocator.refusals import Conflict, Reason, Refusal
from dray.allocator.requests import Ask, named
from dray.allocator.search.trace import Exhausted, Faulted, GaveUp, Pick, Point, Solved
from dray.explain.diagnosis import Account, Attempt, Found, NodeStory, Outcome, Why
from dray.explain.failed_conditions import worded
from dray.explain.refusal_details import Witness, label, shortage
from dray.explain.search_trace import Halt, Tale
from dray.explain.work_budget import Effort, Steps
from dray.values.quantity import Form, Quantity

_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_OUTCOMES = {
    Solved: Outcome.FITS,
    Exhausted: Outcome.REFUSED,
    GaveUp: Outcome.GAVE_UP,
    Faulted: Outcome.FAULTED,
}


class Stuck(msgspec.Struct, frozen=True, eq=False):
    """An alternative that could not be had, as the allocator knows it: what hints start from."""

    halt: Halt
    refusals: dict[int, Refusal | None]


class Scene(msgspec.Struct, frozen=True, eq=False):
    """A story and what it was made from."""

    story: NodeStory
    witness: Witness
    stuck: tuple[Stuck, ...]


def making_scene(
    ask: Ask, witness: Witness, tale: Tale, nodes: tuple[str, ...], effort: Effort
) -> Steps[Scene]:
    """The story of some nodes that look alike, told with the names of the first."""
    teller = _Teller(ask, witness, tale, effort)
    ending = tale.ending
    said: dict[str, Any] = {
        "nodes": nodes,
        "outcome": _OUTCOMES[type(ending)],
        "steps": ending.steps,
        "pools": witness.flaws(),
    }
    if isinstance(ending, Solved):
        found = yield from teller.picks(ending.picks)
        said |= {"found": found, "attempts": (yield from teller.left_behind(ending.picks))}
        return Scene(NodeStory(**said), witness, ())
    if isinstance(ending, Faulted):
        said |= teller.fault(ending)
    elif isinstance(ending, GaveUp):
        said |= {
            "seconds": ending.seconds,
            "most_found": ending.found,
            "wanted": ending.wanted,
            "stuck_at": ending.stuck.want.name if ending.stuck is not None else "",
        }
    stuck = teller.stuck()
    if stuck:
        point = stuck[0].halt.point
        before = [p for p in stuck[0].halt.picks if p.point.choice.index < point.choice.index]
        attempts = []
        for entry in stuck:
            attempts.append((yield from teller.attempt(entry)))
        said |= {
            "found": (yield from teller.picks(before, reasons=False)),
            "attempts": tuple(attempts),
            "untried": tuple(c.request for c in ask.choices[point.choice.index + 1 :]),
        }
    return Scene(NodeStory(**said), witness, stuck)


class _Teller:
    """Makes the parts of one story."""

    def __init__(self, ask: Ask, witness: Witness, tale: Tale, effort: Effort) -> None:
        self._effort = effort
        self._ask = ask
        self._witness = witness
        self._tale = tale

    # --- what was found ---

    def picks(self, picks: Sequence[Pick], *, reasons: bool = True) -> Steps[tuple[Found, ...]]:
        """The devices that were found, each with those it was preferred to where reasons are wanted."""
        found = []
        for i, pick in enumerate(picks):
            want = pick.point.want
            passed_over = (yield from self._passed_over(picks[:i], pick)) if reasons else ()
            found.append(
                Found(
                    claim=self._claim(pick.point),
                    request=want.name,
                    label=label(pick.point),
                    device=self._witness.device(pick.candidate),
                    alternative=pick.point.choice.wants.index(want),
                    consumed=self._consumed(pick),
                    admin=want.admin,
                    every=want.wants_all,
                    passed_over=passed_over,
                )
            )
        return tuple(found)

    def _consumed(self, pick: Pick) -> dict[str, str]:
        capacity = self._witness.content(pick.candidate).device.capacity
        forms = {name: held.value.form if held.value else Form.DECIMAL for name, held in capacity.items()}
        return {name: str(Quantity(nanos, forms[name])) for name, nanos in (pick.consumed or {}).items()}

    def _passed_over(self, before: Sequence[Pick], pick: Pick) -> Steps[tuple[Account, ...]]:
        """The devices in front of a pick that it could have been, and why it is none of them."""
        point = pick.point
        if point.want.wants_all:
            return ()
        own = [p.candidate for p in before if p.point.choice is point.choice]
        fates = self._tale.fates.get((point.choice.index, point.nth), {})
        told: dict[int, Refusal | None] = {}
        for candidate, refusal in self._witness.refusals(point, before).items():
            if (own[-1] if own else -1) < candidate < pick.candidate:
                fate = fates.get((point.want, candidate))
                abandoned = refusal is not None and refusal.reason is Reason.LEADS_NOWHERE
                told[candidate] = Refusal(Reason.LEADS_NOWHERE, fate) if abandoned else refusal
        accounts = yield from self._witness.accounting(point, before, told, self._effort)
        return accounts

    # --- what was not ---

    def stuck(self) -> tuple[Stuck, ...]:
        """The alternatives at which the search came to its furthest end."""
        return tuple(self._stuck(halt) for halt in self._tale.furthest)

    def _stuck(self, halt: Halt) -> Stuck:
        told = self._witness.refusals(halt.point, halt.picks)
        seen = {c: refusal for c, refusal in told.items() if halt.looked is None or c < halt.looked}
        return Stuck(halt, seen)

    def left_behind(self, picks: Sequence[Pick]) -> Steps[tuple[Attempt, ...]]:
        """The alternatives that come before those that were taken."""
        chosen = {pick.point.choice.index: pick.point for pick in picks}
        attempts: list[Attempt] = []
        for index, halts in sorted(self._tale.left_behind.items()):
            for halt in halts:
                if index in chosen and _position(halt.point) < _position(chosen[index]):
                    attempts.append((yield from self.attempt(self._stuck(halt))))
        return tuple(attempts)

    def attempt(self, stuck: Stuck) -> Steps[Attempt]:
        """An alternative that could not be had, in full."""
        halt, witness = stuck.halt, self._witness
        point, want = halt.point, halt.point.want
        devices = yield from witness.accounting(point, halt.picks, stuck.refusals, self._effort)
        return Attempt(
            claim=self._claim(point),
            request=want.name,
            label=label(point),
            device_class=want.class_name,
            count=0 if want.wants_all else want.count,
            found=point.nth,
            every=want.wants_all,
            obstacle=self._obstacle(halt) if halt.obstacle is not None else None,
            devices=devices,
            nearest=witness.nearest(want, stuck.refusals),
        )

    def _obstacle(self, halt: Halt) -> Why:
        """What kept an alternative from being tried, or from being tried further."""
        obstacle, want = halt.obstacle, halt.point.want
        assert obstacle is not None
        reason, detail = obstacle.reason, obstacle.detail
        if isinstance(detail, Conflict):
            pinned = worded([value for _, value in detail.wanted])
            return Why(reason=reason, name=detail.attribute, distinct=detail.distinct, expected=pinned)
        if reason is Reason.COUNTER_SHORT:
            return shortage(reason, detail, self._witness.drawing_from(detail.name), want)
        if reason in (Reason.POOL_INCOMPLETE, Reason.POOL_INVALID):
            # Nodes that look alike may have different flaws: the pools of the story have the numbers.
            return Why(reason=reason)
        return shortage(reason, detail, None, want)

    def fault(self, ending: Faulted) -> dict[str, Any]:
        """The device that could not be judged, and for whom."""
        why = self._witness.why(ending.point, (), ending.candidate, ending.refusal)
        account = Account(device=self._witness.device(ending.candidate), why=why)
        return {"fault": account, "fault_request": label(ending.point)}

    def _claim(self, point: Point) -> str:
        return named(self._ask.claims[point.choice.claim])


def _position(point: Point) -> int:
    return point.choice.wants.index(point.want)


def closeness(scene: Scene) -> tuple[Any, ...]:
    """Sorts stories: those that fit first, in the order nodes are chosen; then the closest ones."""
    story = scene.story
    if story.outcome is Outcome.FITS:
        return (False, story.rank, story.nodes[0])
    refused = [account.why for attempt in story.attempts for account in attempt.devices if account.why]
    furthest_rule = max((_RANK[why.reason] for why in refused), default=-1)
    found = max((attempt.found for attempt in story.attempts), default=0)
    return (
        True,
        -len({(entry.claim, entry.request) for entry in story.found}),
        -found,
        story.outcome is Outcome.FAULTED,
        -furthest_rule,
        min((scene.witness.distance(stuck.refusals) for stuck in scene.stuck), default=()),
        len(refused),
        story.nodes[0],
    )
