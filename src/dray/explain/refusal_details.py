"""Bearing witness: refusals of numbered candidates become accounts of named devices.

Theory of operation: the search knows candidates by number and says no with as little as possible. A witness
knows one node: its devices by name, who holds them, which earlier picks pin a value. Everything a sentence
could need is looked up here, once, and put into a `Why`; after that nobody asks the allocator again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.inventory.device_inventory import View
from dray.allocator.inventory.device_profiles import Content
from dray.allocator.inventory.pool_views import Incomplete
from dray.allocator.inventory.usage import PoolId, Usage
from dray.allocator.refusals import Conflict, Reason, Refusal, Short
from dray.allocator.requests import Ask, Want, named
from dray.allocator.search.candidate_review import Standpoint
from dray.allocator.search.candidates import options_of
from dray.allocator.search.trace import Pick, Point
from dray.api.devices.taint_rules import rule_behind
from dray.api.resource import DeviceTaint
from dray.explain.diagnosis import Account, DeviceName, Nearest, PoolFlaw, Why
from dray.explain.failed_conditions import Reading, read, worded
from dray.explain.work_budget import PORTION, Effort, Steps
from dray.values.quantity import Form, Quantity

NODE = "<node>"

_NOWHERE: Refusal | None = Refusal(Reason.LEADS_NOWHERE)


class Witness:
    """Knows the names on one node."""

    def __init__(self, ask: Ask, view: View, usage: Usage, hidden: Sequence[PoolId] = ()) -> None:
        self._ask = ask
        self._hidden = hidden
        self._usage = usage
        self.view = view
        self._names = [
            DeviceName(driver=shelf.pool[0], pool=shelf.pool[1], device=name)
            for shelf in view.shelves
            for name in shelf.names
        ]

    def device(self, candidate: int) -> DeviceName:
        """The name of a candidate."""
        return self._names[candidate]

    def content(self, candidate: int) -> Content:
        """What a candidate is."""
        return self.view.shape.contents[candidate]

    def drawing_from(self, counter: str) -> Content | None:
        """Some device that draws from a counter, to know how its amounts are written."""
        for content in self.view.shape.contents:
            if any(f"{group}/{name}" == counter for group, name, _ in content.counters):
                return content
        return None

    def refusals(self, point: Point, picks: Sequence[Pick]) -> dict[int, Refusal | None]:
        """What the rules say of every candidate at a point; None for those the request has already.

        A request for all devices only minds those that match, and has every one that nothing keeps away.
        """
        told = Standpoint(self._ask, self.view.shape, picks).refusals(point)
        own = {pick.candidate for pick in picks if pick.point.choice is point.choice}
        otherwise, matching = _NOWHERE, 0
        if point.want.wants_all:
            otherwise, matching = None, options_of(self.view.shape, point.want).suiting
        return {
            candidate: None if candidate in own else refusal or otherwise
            for candidate, refusal in told.items()
            if not matching or matching >> candidate & 1
        }

    def accounting(
        self, point: Point, picks: Sequence[Pick], refusals: dict[int, Refusal | None], effort: Effort
    ) -> Steps[tuple[Account, ...]]:
        """The same by name, with everything there is to know; in steps, as there may be thousands."""
        accounts: list[Account] = []
        for candidate, refusal in refusals.items():
            why = self.why(point, picks, candidate, refusal) if refusal is not None else None
            accounts.append(Account(device=self.device(candidate), why=why))
            if len(accounts) % PORTION == 0:
                yield from effort.pause()
        return tuple(accounts)

    def why(self, point: Point, picks: Sequence[Pick], candidate: int, refusal: Refusal) -> Why:
        """One refusal of one device in full."""
        reason, detail, want = refusal.reason, refusal.detail, point.want
        content = self.content(candidate)
        match reason, detail:
            case Reason.UNSUITED, (str(expression), _):
                reading = read(content, expression)
                return Why(
                    reason=reason,
                    owner=owner_of(want, expression),
                    expression=expression,
                    condition=reading.condition,
                    subject=reading.subject,
                    value=reading.value,
                )
            case Reason.BROKEN_SELECTOR, (str(expression), str(error)):
                owner = owner_of(want, expression)
                return Why(reason=reason, owner=owner, expression=expression, error=error)
            case Reason.IN_USE, _:
                return Why(reason=reason, holders=self.holders(candidate))
            case Reason.TAKEN_HERE, Point():
                return Why(reason=reason, request=detail.want.name, claim=self._other_claim(point, detail))
            case Reason.LEADS_NOWHERE, Point():
                return Why(reason=reason, request=label(detail), claim=self._other_claim(point, detail))
            case Reason.CONSTRAINT, Conflict():
                return self._conflict(point, picks, detail)
            case Reason.TAINTED, DeviceTaint():
                return Why(reason=reason, taint=taint_text(detail), rule=rule_behind(detail))
            case _:
                return shortage(reason, detail, content, want)

    def holders(self, candidate: int) -> tuple[str, ...]:
        """The claims that hold a device."""
        name = self.device(candidate)
        use = self._usage.of_pool((name.driver, name.pool))
        held = use.holders.get(name.device) or tuple(filter(None, (use.whole.get(name.device),)))
        return tuple(dict.fromkeys(held))

    def _other_claim(self, point: Point, other: Point) -> str:
        """The claim of another point, when it is another claim."""
        if other.choice.claim == point.choice.claim:
            return ""
        return named(self._ask.claims[other.choice.claim])

    def _conflict(self, point: Point, picks: Sequence[Pick], conflict: Conflict) -> Why:
        """Which earlier picks pin the value that the device does not go with."""
        rules = [rule for rule in point.want.rules if rule.attribute == conflict.attribute]
        peers = []
        for pick in picks:
            covered = any(rule in pick.point.want.rules for rule in rules)
            values = self.content(pick.candidate).values(conflict.attribute)
            if covered and (not conflict.distinct or values & conflict.found):
                peers.append(self.device(pick.candidate).device)
        clash = conflict.found & conflict.wanted if conflict.distinct else conflict.wanted
        # A text is never a number, though both may read `1`: where types differ, they are the answer.
        kinds = [{kind for kind, _ in values} for values in (conflict.found, clash)]
        found, wanted = (f"{min(kind)} " if kinds[0].isdisjoint(kinds[1]) else "" for kind in kinds)
        return Why(
            reason=Reason.CONSTRAINT,
            name=conflict.attribute,
            distinct=conflict.distinct,
            value=found + worded([value for _, value in conflict.found]),
            expected=wanted + " or ".join(sorted(worded([value]) for _, value in clash)),
            peers=tuple(dict.fromkeys(peers)),
        )

    def nearest(self, want: Want, refusals: dict[int, Refusal | None]) -> Nearest | None:
        """Of the devices a selector refuses, the one that comes nearest and has something to show.

        Devices of the class come before all others, however near those are.
        """
        readings: list[tuple[Any, int, Reading]] = []
        for candidate, refusal in refusals.items():
            if refusal is not None and refusal.reason is Reason.UNSUITED:
                expression = refusal.detail[0]
                reading = read(self.content(candidate), expression)
                stranger = owner_of(want, expression).startswith("class ")
                readings.append(((stranger, *reading.order), candidate, reading))
        if not readings:
            return None
        _, candidate, reading = min(readings, key=lambda entry: entry[:2])
        if not reading.subject and not reading.all_but:
            return None
        return Nearest(
            device=self.device(candidate),
            condition=reading.condition,
            subject=reading.subject,
            value=reading.value,
            is_amount=reading.is_amount,
            all_but=reading.all_but,
        )

    def distance(self, refusals: dict[int, Refusal | None]) -> tuple[Any, ...]:
        """How far the nearest device is from meeting a selector; nothing when selectors refuse none."""
        return min(
            (
                read(self.content(candidate), refusal.detail[0]).order
                for candidate, refusal in refusals.items()
                if refusal is not None and refusal.reason is Reason.UNSUITED
            ),
            default=(),
        )

    def flaws(self) -> tuple[PoolFlaw, ...]:
        """The pools this node cannot use."""
        return flaws_of(self.view, self._hidden)


def flaws_of(view: View, hidden: Sequence[PoolId]) -> tuple[PoolFlaw, ...]:
    """The pools that a node cannot use, in whole or, where a closed gate hides slices of them, in part."""
    node = view.node.metadata.name
    flaws = [flaw_of(shelf.pool, shelf.flaw, node) for shelf in view.shelves if shelf.flaw is not None]
    return (*flaws, *(flaw_of(pool, Refusal(Reason.COUNTERS_OFF), node) for pool in hidden))


def flaw_of(pool: tuple[str, str], flaw: Refusal, node: str) -> PoolFlaw:
    """A pool that lends nothing, with the numbers that show it."""
    pattern = pool[1].replace(node, NODE) if node else pool[1]
    said: dict[str, Any] = {"driver": pool[0], "pool": pool[1], "pattern": pattern, "reason": flaw.reason}
    if isinstance(flaw.detail, Incomplete):
        detail = flaw.detail
        said |= {
            "published": detail.published,
            "expected": detail.expected,
            "generation": detail.generation,
        }
    elif flaw.detail is not None:
        said["text"] = str(flaw.detail)
    return PoolFlaw(**said)


def label(point: Point) -> str:
    """A point as people count: the request, and which device of it where there are several."""
    several = point.want.wants_all or point.want.count > 1
    return f"{point.want.name}[{point.nth}]" if several else point.want.name


def owner_of(want: Want, expression: str) -> str:
    """Who brought a selector: a class or a request."""
    return next((owner for owner, text in want.selectors if text == expression), "")


def taint_text(taint: DeviceTaint) -> str:
    """A taint as it is written on command lines."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def shortage(reason: Reason, detail: Any, content: Content | None, want: Want) -> Why:
    """Amounts, names and whatever else a refusal carries."""
    if isinstance(detail, str):
        return Why(reason=reason, name=detail)
    if not isinstance(detail, Short):
        return Why(reason=reason)
    form = _form(detail.name, content) if content is not None else None
    if form is None:
        return Why(reason=reason, name=detail.name, wanted=str(detail.want), left=str(detail.left))
    asked = dict(want.amounts).get(detail.name)
    return Why(
        reason=reason,
        name=detail.name,
        wanted=str(Quantity(detail.want, form)),
        left=str(Quantity(detail.left, form)),
        expected=str(Quantity(asked, form)) if asked is not None and asked != detail.want else "",
        is_total=content is not None and content.totals.get(detail.name) == detail.left,
    )


def _form(name: str, content: Content) -> Form | None:
    """How amounts of a capacity or counter are written on this device."""
    capacity = content.device.capacity.get(name)
    if capacity is not None and capacity.value is not None:
        return capacity.value.form
    group, _, counter = name.partition("/")
    for drawn in content.device.consumes_counters:
        found = drawn.counters.get(counter) if drawn.counter_set == group else None
        if found is not None and found.value is not None:
            return found.value.form
    return None
