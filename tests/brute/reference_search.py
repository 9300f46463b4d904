"""The plain search: every choice, every alternative, every combination, in order.

Theory of operation: recursion over the requests of all claims. A partial solution is the list of its picks,
and every rule is asked of the whole list again, from nothing; so there is nothing to undo and nothing to
remember. The first full list is the answer. It is far too slow for anything but small problems, and that is
the point: there is no cleverness in it that could be wrong.

Rules for this file: no pruning, no caching of partial results, nothing imported from `dray.allocator`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dray.api.resource import DeviceConstraint, DeviceTaint
from dray.values.quantity import Quantity
from tests.brute.problem import Problem
from tests.brute.reference_amounts import Unrepresentable, consumed_by
from tests.brute.reference_pools import Thing, look
from tests.brute.toy_selectors import evaluate_toy

MOST_STEPS = 60_000
"""Candidates looked at before a problem counts as too large for this search."""


class ClaimFault(Exception):  # noqa: N818
    """A claim that no node could answer."""


class DeviceFault(Exception):  # noqa: N818
    """A device that cannot be judged."""

    def __init__(self, place: tuple[str, str, str]) -> None:
        super().__init__(place)
        self.place = place


class TooLarge(Exception):  # noqa: N818
    """More work than this search is for."""


@dataclass(frozen=True)
class PlainWant:
    """One alternative of a request."""

    claim: int
    request: str
    name: str
    ask: Any
    admin: bool


@dataclass(frozen=True)
class PlainPick:
    """A device taken for a want; `consumed` is set for a share."""

    want: PlainWant
    thing: Thing
    consumed: tuple[tuple[str, Fraction], ...] | None


Picks = tuple[PlainPick, ...]


class PlainSearch:
    """One problem, asked about its first node."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._classes = {item.metadata.name: item for item in problem.classes}
        self._visible = look(problem)
        self._steps = 0
        self._choices = [
            (c, [self._want(c, *alternative) for alternative in _alternatives(request)])
            for c, claim in enumerate(problem.claims)
            for request in claim.spec.devices.requests
        ]
        for c in range(len(problem.claims)):
            least = sum(
                min(0 if want.ask.allocation_mode == "All" else want.ask.count for want in alternatives)
                for index, alternatives in self._choices
                if index == c
            )
            if least > problem.limit:
                raise ClaimFault(f"claim {c} asks for {least} devices")

    def solutions(self) -> Iterator[Picks]:
        """All solutions, in order; raises `DeviceFault` where it comes to a device it cannot judge."""
        return self._choose(0, ())

    def _want(self, c: int, request: str, name: str, ask: Any, admin: bool) -> PlainWant:
        if ask.device_class_name not in self._classes:
            raise ClaimFault(f"no class {ask.device_class_name}")
        return PlainWant(c, request, name, ask, admin)

    # --- choices, alternatives, devices ---

    def _choose(self, index: int, picks: Picks) -> Iterator[Picks]:
        if index == len(self._choices):
            yield picks
            return
        c, alternatives = self._choices[index]
        before = sum(1 for pick in picks if pick.want.claim == c)
        for want in alternatives:
            if want.ask.allocation_mode == "All":
                yield from self._take_all(index, want, before, picks)
            elif before + want.ask.count <= self._problem.limit:
                yield from self._take(index, want, want.ask.count, 0, picks)

    def _take(self, index: int, want: PlainWant, missing: int, start: int, picks: Picks) -> Iterator[Picks]:
        if not missing:
            yield from self._choose(index + 1, picks)
            return
        for i in range(start, len(self._visible.things)):
            self._step()
            thing = self._visible.things[i]
            if self._in_use(thing, want, picks) or not self._matches(thing, want):
                continue
            if self._is_unusable(thing, want) or self._is_refused(thing, want, picks):
                continue
            taken = (*picks, self._pick(thing, want))
            yield from self._take(index, want, missing - 1, i + 1, taken)

    def _take_all(self, index: int, want: PlainWant, before: int, picks: Picks) -> Iterator[Picks]:
        if self._visible.broken:
            return
        matching, fault = [], None
        for thing in self._visible.things:
            self._step()
            try:
                if self._matches(thing, want):
                    matching.append(thing)
            except DeviceFault as found:
                fault = fault or found
        if before + len(matching) > self._problem.limit:
            return
        if fault is not None:
            raise fault
        for thing in matching:
            self._step()
            if self._in_use(thing, want, picks) or self._is_unusable(thing, want):
                return
            if self._is_refused(thing, want, picks):
                return
            picks = (*picks, self._pick(thing, want))
        if matching:
            yield from self._choose(index + 1, picks)

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TooLarge

    def _pick(self, thing: Thing, want: PlainWant) -> PlainPick:
        consumed = None
        if thing.is_shared:
            amounts = consumed_by(thing.device, _asked(want))
            assert amounts is not None
            consumed = tuple(sorted(amounts.items()))
        return PlainPick(want, thing, consumed)

    # --- rules about one device ---

    def _matches(self, thing: Thing, want: PlainWant) -> bool:
        """Whether selectors are true and the device could ever give what is asked."""
        if getattr(thing.device, "withheld", None) == "BindingConditions":
            return False
        chosen = self._classes[want.ask.device_class_name]
        for selector in (*chosen.spec.selectors, *want.ask.selectors):
            verdict = evaluate_toy(selector.cel.expression, thing.driver, thing.device)
            if isinstance(verdict, str):
                raise DeviceFault(thing.place)
            if not verdict:
                return False
        try:
            return consumed_by(thing.device, _asked(want)) is not None
        except Unrepresentable:
            raise DeviceFault(thing.place) from None

    def _is_unusable(self, thing: Thing, want: PlainWant) -> bool:
        """Whether the device matches but must not be taken: withheld, tainted, or bound in two ways."""
        if getattr(thing.device, "withheld", None) is not None:
            return True
        return thing.is_tangled or any(
            taint.effect in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, want)
            for taint in thing.device.taints
        )

    # --- rules about everything taken ---

    def _held(self, place: tuple[str, str, str]) -> list[Any]:
        """The allocation results of others for a device; admin access holds nothing."""
        return [
            result
            for claim in self._problem.held
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
            if (result.driver, result.pool, result.device) == place and not result.admin_access
        ]

    def _in_use(self, thing: Thing, want: PlainWant, picks: Picks) -> bool:
        here = [pick for pick in picks if pick.thing == thing]
        if want.admin:
            return not thing.is_shared and any(pick.want.claim == want.claim for pick in here)
        held = self._held(thing.place)
        if not thing.is_shared:
            return bool(held or here)
        return any(result.share_id is None and not result.consumed_capacity for result in held)

    def _is_refused(self, thing: Thing, want: PlainWant, picks: Picks) -> bool:
        if self._is_full(thing, want, picks):
            return True
        if not want.admin and thing.device.consumes_counters and self._is_overdrawn(thing, picks):
            return True
        claim = self._problem.claims[want.claim]
        return any(
            not _holds(constraint, [*_covered(constraint, picks, want.claim), thing])
            for constraint in claim.spec.devices.constraints
            if _covers(constraint, want)
        )

    def _is_full(self, thing: Thing, want: PlainWant, picks: Picks) -> bool:
        """Whether one more share is more than the device has; also of old shares of a dedicated one."""
        wanted = consumed_by(thing.device, _asked(want))
        assert wanted is not None
        for name, amount in wanted.items():
            amount += sum(
                max(fraction(result.consumed_capacity[name]), Fraction(0))
                for result in self._held(thing.place)
                if name in result.consumed_capacity
            )
            amount += sum(dict(pick.consumed or ()).get(name, 0) for pick in picks if pick.thing == thing)
            if amount > fraction(thing.device.capacity[name].value):
                return True
        return False

    def _is_overdrawn(self, thing: Thing, picks: Picks) -> bool:
        """Whether a counter of the pool would be, or is, below nothing; a device is charged once."""
        pool = (thing.driver, thing.pool)
        pages = self._visible.slices_by_pool[pool]
        held = [device for page in pages for device in page.spec.devices if self._held((*pool, device.name))]
        names = {device.name for device in held}
        now = {pick.thing.device.name: pick.thing.device for pick in picks if _draws(pick, pool)}
        if thing.is_shared and (thing.device.name in names or thing.device.name in now):
            return False
        budget = {
            (group.name, name): fraction(counter.value)
            for page in pages
            for group in page.spec.shared_counters
            for name, counter in group.counters.items()
        }
        left = _less(budget, held)
        if any(amount < 0 for amount in left.values()):
            return True
        left = _less(left, [device for name, device in now.items() if name not in names] + [thing.device])
        return any(amount < 0 for amount in left.values())


def _draws(pick: PlainPick, pool: tuple[str, str]) -> bool:
    return not pick.want.admin and (pick.thing.driver, pick.thing.pool) == pool


def _less(budget: dict[Any, Fraction], devices: list[Any]) -> dict[Any, Fraction]:
    left = dict(budget)
    for device in devices:
        for drawn in device.consumes_counters:
            for name, counter in drawn.counters.items():
                left[drawn.counter_set, name] -= max(fraction(counter.value), Fraction(0))
    return left


def fraction(amount: Quantity | None) -> Fraction:
    return Fraction(amount.nanos, 10**9) if amount is not None else Fraction(0)


def _asked(want: PlainWant) -> dict[str, Fraction]:
    if want.ask.capacity is None:
        return {}
    return {name: fraction(amount) for name, amount in want.ask.capacity.requests.items()}


def _alternatives(request: Any) -> list[tuple[str, str, Any, bool]]:
    if request.exactly is not None:
        return [(request.name, request.name, request.exactly, bool(request.exactly.admin_access))]
    return [(request.name, f"{request.name}/{sub.name}", sub, False) for sub in request.first_available]


def _is_tolerated(taint: DeviceTaint, want: PlainWant) -> bool:
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (
            toleration.operator == "Exists"
            or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
        )
        for toleration in want.ask.tolerations
    )


# --- constraints ---


def _covers(constraint: DeviceConstraint, want: PlainWant) -> bool:
    return not constraint.requests or want.name in constraint.requests or want.request in constraint.requests


def _covered(constraint: DeviceConstraint, picks: Picks, claim: int) -> list[Thing]:
    return [pick.thing for pick in picks if pick.want.claim == claim and _covers(constraint, pick.want)]


def _holds(constraint: DeviceConstraint, things: list[Thing]) -> bool:
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    values = [_values(thing, attribute) for thing in things]
    if not all(values):
        return False
    if constraint.match_attribute:
        return bool(set.intersection(*values))
    return all(not values[i] & values[j] for i in range(len(values)) for j in range(i))


def _values(thing: Thing, attribute: str) -> set[tuple[str, Any]]:
    """What a device has of an attribute, with types; a name without a domain belongs to the driver."""
    found = thing.device.attributes.get(attribute)
    if found is None and attribute.startswith(thing.driver + "/"):
        found = thing.device.attributes.get(attribute[len(thing.driver) + 1 :])
    held = found.get_typed_values() if found is not None else None
    return {(held[0], value) for value in held[1]} if held is not None else set()
