"""Changes that might help, as a table: each move looks at what stood in the way and proposes edits.

Theory of operation: a move is given a *case*, one alternative that could not be had on one node, with the
refusal of every device. It proposes changes, the smallest first, that would take those refusals away. A
proposal is a guess and nothing more: `hints` runs the search with it before anybody reads it. Admin access is
never proposed: it takes devices that belong to somebody.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.what_if import as_if_complete, without_claim
from dray.allocator.refusals import Reason, Refusal, Short
from dray.allocator.requests import MAX_RESULTS, Want, ask_of
from dray.allocator.search.candidates import options_of
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
)
from dray.api.resource.claim import EXACT_COUNT
from dray.explain.failed_conditions import guards, joined_without, read, short_form
from dray.explain.node_reports import Scene, Stuck
from dray.explain.refusal_details import owner_of, taint_text
from dray.explain.remedies.claim_edits import Claims, Edit, drop_constraint, edit_want
from dray.explain.wording import joined, plain
from dray.values.quantity import Quantity

_QUANTITY = re.compile(r"quantity\(\s*(\"[^\"]*\"|'[^']*')\s*\)")
_NEAR = 0.8
_MOST_CLASSES = 3
_MOST_CLAIMS = 8


class Change(msgspec.Struct, frozen=True, eq=False):
    """Something that might help: in words (what one would do), and the question with it applied."""

    text: str
    claims: Claims
    stock: Stock
    here_only: bool = False


class Case(msgspec.Struct, frozen=True, eq=False):
    """One alternative that could not be had on one node."""

    stock: Stock
    claims: Claims
    scene: Scene
    stuck: Stuck

    @property
    def want(self) -> Want:
        return self.stuck.halt.point.want

    @property
    def claim(self) -> int:
        return self.stuck.halt.point.choice.claim

    def refused(self, *reasons: Reason) -> Iterator[tuple[int, Refusal]]:
        """The devices that were refused for one of these reasons."""
        for candidate, refusal in self.stuck.refusals.items():
            if refusal is not None and refusal.reason in reasons:
                yield candidate, refusal

    def change(self, text: str, edit: Edit) -> Change:
        """A change of the request itself."""
        return Change(text, edit_want(self.claims, self.claim, self.want.name, edit), self.stock)

    @property
    def request(self) -> str:
        return f"request `{self.want.name}`"


Move = Callable[[Case], Iterator[Change]]


def tolerate(case: Case) -> Iterator[Change]:
    """Tolerate what a device is tainted with, and what else shows up on it then."""
    seen: set[str] = set()
    for candidate, refusal in case.refused(Reason.TAINTED):
        taints: list[DeviceTaint] = []
        found: Refusal | None = refusal
        while found is not None and found.reason is Reason.TAINTED and found.detail not in taints:
            taints.append(found.detail)
            text = joined([f"`{taint_text(taint)}`" for taint in taints])
            if text in seen:
                break
            seen.add(text)
            more = tuple(
                DeviceToleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in taints
            )
            change = case.change(
                f"tolerating {text}",
                lambda asked, more=more: msgspec.structs.replace(asked, tolerations=asked.tolerations + more),
            )
            yield change
            found = _refusal_now(case, change, candidate)


def _refusal_now(case: Case, change: Change, candidate: int) -> Refusal | None:
    ask = ask_of(change.claims, case.stock.classes.get)
    for choice in ask.choices:
        for want in choice.wants:
            if choice.claim == case.claim and want.name == case.want.name:
                options = options_of(case.scene.witness.view.shape, want)
                options.complete()
                return options.refusals.get(candidate)
    return None


def ask_for_less(case: Case) -> Iterator[Change]:
    """Ask for the amounts that devices have left, the largest first."""
    asked = dict(case.want.amounts)
    offers: set[tuple[int, str]] = set()
    for candidate, refusal in case.refused(Reason.CAPACITY_SHORT, Reason.CAPACITY_POLICY):
        short: Short = refusal.detail
        policy = case.scene.witness.content(candidate).device.capacity[short.name].request_policy
        offer = largest_allowed(policy, short.left)
        if 0 < offer < asked.get(short.name, short.want):
            offers.add((offer, short.name))
    for nanos, name in sorted(offers, reverse=True):
        form = next(
            held.value.form
            for content in case.scene.witness.view.shape.contents
            if (held := content.device.capacity.get(name)) is not None and held.value is not None
        )
        amount = Quantity(nanos, form)
        instead = f" instead of {Quantity(asked[name], form)}" if name in asked else " (now all of it)"

        def lower(request: Any, name: str = name, amount: Quantity = amount) -> Any:
            known = request.capacity.requests if request.capacity is not None else {}
            return msgspec.structs.replace(
                request, capacity=CapacityRequirements(requests={**known, name: amount})
            )

        yield case.change(f"asking for {amount} of `{name}`{instead} in {case.request}", lower)


def largest_allowed(policy: CapacityRequestPolicy | None, left: int) -> int:
    """The largest amount up to what is left that the policy does not round up."""
    if policy is None:
        return left
    if policy.valid_values:
        return max((value.nanos for value in policy.valid_values if value.nanos <= left), default=0)
    limits = policy.valid_range
    if limits is None or limits.min is None:
        return left
    least = limits.min.nanos
    step = limits.step.nanos if limits.step is not None else 0
    if left < least or step <= 0:
        return left if left >= least else 0
    return least + (left - least) // step * step


def ask_for_fewer(case: Case) -> Iterator[Change]:
    """Ask for fewer devices, as many as there may be first."""
    want = case.want
    if want.wants_all:
        had = sum(refusal is None for refusal in case.stuck.refusals.values())
        counts = range(min(had, MAX_RESULTS), 0, -1)
        instead = "all"
    else:
        counts = range(want.count - 1, 0, -1)
        instead = str(want.count)
    for count in counts:
        noun = "device" if count == 1 else "devices"
        yield case.change(
            f"asking for {count} {noun} instead of {instead} in {case.request}",
            lambda asked, count=count: msgspec.structs.replace(
                asked, allocation_mode=EXACT_COUNT, count=count
            ),
        )


def relax_selector(case: Case) -> Iterator[Change]:
    """Ask a selector for what the nearest devices have; else without the condition, else without it."""
    witness = case.scene.witness
    readings = [
        (read(witness.content(candidate), refusal.detail[0]), str(refusal.detail[0]))
        for candidate, refusal in case.refused(Reason.UNSUITED)
        if owner_of(case.want, refusal.detail[0]).startswith("request ")
    ]
    readings.sort(key=lambda entry: entry[0].order)
    proposals: list[tuple[str, str, str | None]] = []
    for reading, expression in readings:
        bounds = _QUANTITY.findall(reading.condition)
        if reading.is_amount and reading.value and len(bounds) == 1:
            asked = bounds[0][1:-1]
            lowered = reading.condition.replace(bounds[0], f'"{reading.value}"')
            text = f"asking for {reading.value} instead of {asked} in the selector of {case.request}"
            proposals.append((text, expression, expression.replace(reading.condition, lowered)))
    for reading, expression in readings:
        text = f"dropping the condition `{plain(short_form(reading.condition))}` of {case.request}"
        rest = joined_without(expression, reading.condition)
        if rest is not None:
            proposals.append((text, expression, rest))
    broken = [str(refusal.detail[0]) for _, refusal in case.refused(Reason.BROKEN_SELECTOR)]
    for expression in broken:
        for guard in guards(expression):
            text = f"guarding the selector of {case.request} with `{guard}`"
            proposals.append((text, expression, f"{guard} && ({expression})"))
    for expression in [*(expression for _, expression in readings), *broken]:
        if owner_of(case.want, expression).startswith("request "):
            proposals.append(
                (
                    f"dropping the selector `{plain(short_form(expression))}` of {case.request}",
                    expression,
                    None,
                )
            )
    for text, old, new in dict.fromkeys(proposals):
        yield case.change(text, lambda asked, old=old, new=new: _with_selector(asked, old, new))


def _with_selector(asked: Any, old: str, new: str | None) -> Any:
    kept = []
    for selector in asked.selectors:
        if selector.cel is None or selector.cel.expression != old:
            kept.append(selector)
        elif new is not None:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=new)))
    return msgspec.structs.replace(asked, selectors=tuple(kept))


def relax_constraint(case: Case) -> Iterator[Change]:
    """Drop one of the constraints that refused a device."""
    refused = {
        refusal.detail if isinstance(refusal.detail, str) else refusal.detail.attribute
        for _, refusal in case.refused(Reason.CONSTRAINT, Reason.ATTRIBUTE_MISSING)
    }
    for rule in case.want.rules:
        if rule.attribute in refused:
            kind = "different" if rule.distinct else "same"
            text = f"dropping the constraint `{kind} {rule.attribute}`"
            yield Change(text, drop_constraint(case.claims, rule.claim, rule.position), case.stock)


def free_a_claim(case: Case) -> Iterator[Change]:
    """Wait for one claim to be given back."""
    witness = case.scene.witness
    holders: dict[str, list[str]] = {}
    for candidate in _held_back(case):
        for claim in witness.holders(candidate):
            holders.setdefault(claim, []).append(witness.device(candidate).device)
    for claim, devices in list(holders.items())[:_MOST_CLAIMS]:
        text = f"giving back claim {claim} (it holds {joined(devices, 3)})"
        usage = without_claim(case.stock.usage, claim, [shelf.pool for shelf in witness.view.shelves])
        yield Change(text, case.claims, case.stock.with_usage(usage), here_only=True)


def _held_back(case: Case) -> Iterable[int]:
    """Devices whose holders stand in the way: taken ones, shared ones, those that use up counters."""
    held = [candidate for candidate, _ in case.refused(Reason.IN_USE, Reason.CAPACITY_SHORT)]
    shape = case.scene.witness.view.shape
    for pool in {shape.pool_of[candidate] for candidate, _ in case.refused(Reason.COUNTER_SHORT)}:
        held += [
            i for i, of_pool in enumerate(shape.pool_of) if of_pool == pool and shape.contents[i].counters
        ]
    return dict.fromkeys(held)


def complete_a_pool(case: Case) -> Iterator[Change]:
    """Wait for a pool whose published devices would do."""
    node = case.scene.witness.view.node
    for flaw in case.scene.story.pools:
        if flaw.reason is Reason.POOL_INCOMPLETE:
            stock = as_if_complete(case.stock, node, (flaw.driver, flaw.pool))
            if stock is not None:
                missing = flaw.expected - flaw.published
                noun = "slice" if missing == 1 else "slices"
                text = f"the missing {noun} of pool {flaw.driver}/{flaw.pool}"
                yield Change(text, case.claims, stock, here_only=True)


def use_another_class(case: Case) -> Iterator[Change]:
    """Another class with a name like the one that was asked for."""
    old = case.want.class_name
    for name in near(old, case.stock.classes):
        text = f"asking for class `{name}` instead of `{old}` in {case.request}"
        yield case.change(
            text, lambda asked, name=name: msgspec.structs.replace(asked, device_class_name=name)
        )


def near(name: str, known: Iterable[str]) -> list[str]:
    """Names that are like a name, the nearest first: with a typo mended, or with the same first word."""
    alike: dict[str, float] = {}
    for other in sorted(set(known) - {name}):
        likeness = difflib.SequenceMatcher(None, name, other, autojunk=False).ratio()
        if likeness >= _NEAR or _first_word(name) == _first_word(other):
            alike[other] = likeness
    return sorted(alike, key=lambda other: -alike[other])[:_MOST_CLASSES]


def _first_word(name: str) -> str:
    return re.split(r"[-./]", name, maxsplit=1)[0]


MOVES: dict[str, Move] = {
    "Tolerate": tolerate,
    "AskForLess": ask_for_less,
    "RelaxSelector": relax_selector,
    "AskForFewer": ask_for_fewer,
    "RelaxConstraint": relax_constraint,
    "CompletePool": complete_a_pool,
    "FreeClaim": free_a_claim,
    "AnotherClass": use_another_class,
}
"""Every kind of change, the smallest first."""
