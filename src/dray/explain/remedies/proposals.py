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

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.what_if import assume_complete_pool, remove_claim_usage
from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.allocator.requests import MAX_RESULTS, RequestAlternative, normalize_claims
from dray.allocator.search.candidates import get_candidate_set
from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequirements,
    CELDeviceSelector,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
)
from dray.api.resource.claim import EXACT_COUNT
from dray.explain.failed_conditions import (
    build_guards,
    find_failed_condition,
    remove_condition,
    shorten_condition,
)
from dray.explain.node_reports import BlockedAlternative, NodeEvidence
from dray.explain.refusal_details import find_selector_owner, format_taint
from dray.explain.remedies.claim_edits import ClaimTuple, RequestEdit, drop_constraint, edit_request
from dray.explain.wording import join_names, to_single_line
from dray.values.quantity import Quantity

_QUANTITY = re.compile(r"quantity\(\s*(\"[^\"]*\"|'[^']*')\s*\)")
_MIN_SIMILARITY = 0.8
_MAX_CLASSES = 3
_MAX_CLAIMS = 8


class ProposedChange(msgspec.Struct, frozen=True, eq=False):
    """Something that might help: in words (what one would do), and the question with it applied."""

    text: str
    claims: ClaimTuple
    inventory: DeviceInventory
    single_node: bool = False


class RemedyCase(msgspec.Struct, frozen=True, eq=False):
    """One alternative that could not be had on one node."""

    inventory: DeviceInventory
    claims: ClaimTuple
    evidence: NodeEvidence
    blocked: BlockedAlternative

    @property
    def alternative(self) -> RequestAlternative:
        return self.blocked.dead_end.point.alternative

    @property
    def claim_index(self) -> int:
        return self.blocked.dead_end.point.choice.claim_index

    def list_refused(self, *reasons: RefusalReason) -> Iterator[tuple[int, Refusal]]:
        """The devices that were refused for one of these reasons."""
        for candidate, refusal in self.blocked.refusals.items():
            if refusal is not None and refusal.reason in reasons:
                yield candidate, refusal

    def propose_change(self, text: str, edit: RequestEdit) -> ProposedChange:
        """A change of the request itself."""
        return ProposedChange(
            text, edit_request(self.claims, self.claim_index, self.alternative.name, edit), self.inventory
        )

    @property
    def request_text(self) -> str:
        return f"request `{self.alternative.name}`"


Remedy = Callable[[RemedyCase], Iterator[ProposedChange]]


def tolerate(case: RemedyCase) -> Iterator[ProposedChange]:
    """Tolerate what a device is tainted with, and what else shows up on it then."""
    seen: set[str] = set()
    for candidate, refusal in case.list_refused(RefusalReason.TAINTED):
        taints: list[DeviceTaint] = []
        found: Refusal | None = refusal
        while found is not None and found.reason is RefusalReason.TAINTED and found.detail not in taints:
            taints.append(found.detail)
            text = join_names([f"`{format_taint(taint)}`" for taint in taints])
            if text in seen:
                break
            seen.add(text)
            more = tuple(
                DeviceToleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in taints
            )
            change = case.propose_change(
                f"tolerating {text}",
                lambda asked, more=more: msgspec.structs.replace(asked, tolerations=asked.tolerations + more),
            )
            yield change
            found = _find_refusal_after(case, change, candidate)


def _find_refusal_after(case: RemedyCase, change: ProposedChange, candidate: int) -> Refusal | None:
    ask = normalize_claims(change.claims, case.inventory.classes.get)
    for choice in ask.choices:
        for want in choice.alternatives:
            if choice.claim_index == case.claim_index and want.name == case.alternative.name:
                options = get_candidate_set(case.evidence.describer.view.shape, want)
                options.evaluate_all()
                return options.refusals.get(candidate)
    return None


def ask_for_less(case: RemedyCase) -> Iterator[ProposedChange]:
    """Ask for the amounts that devices have left, the largest first."""
    asked = dict(case.alternative.amounts)
    offers: set[tuple[int, str]] = set()
    for candidate, refusal in case.list_refused(RefusalReason.CAPACITY_SHORT, RefusalReason.CAPACITY_POLICY):
        short: Shortage = refusal.detail
        policy = case.evidence.describer.get_profile(candidate).device.capacity[short.name].request_policy
        offer = find_largest_allowed(policy, short.left)
        if 0 < offer < asked.get(short.name, short.wanted):
            offers.add((offer, short.name))
    for nanos, name in sorted(offers, reverse=True):
        form = next(
            held.value.form
            for content in case.evidence.describer.view.shape.profiles
            if (held := content.device.capacity.get(name)) is not None and held.value is not None
        )
        amount = Quantity(nanos, form)
        instead = f" instead of {Quantity(asked[name], form)}" if name in asked else " (now all of it)"

        def lower(request: Any, name: str = name, amount: Quantity = amount) -> Any:
            known = request.capacity.requests if request.capacity is not None else {}
            return msgspec.structs.replace(
                request, capacity=CapacityRequirements(requests={**known, name: amount})
            )

        yield case.propose_change(f"asking for {amount} of `{name}`{instead} in {case.request_text}", lower)


def find_largest_allowed(policy: CapacityRequestPolicy | None, left: int) -> int:
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


def ask_for_fewer(case: RemedyCase) -> Iterator[ProposedChange]:
    """Ask for fewer devices, as many as there may be first."""
    want = case.alternative
    if want.takes_all:
        had = sum(refusal is None for refusal in case.blocked.refusals.values())
        counts = range(min(had, MAX_RESULTS), 0, -1)
        instead = "all"
    else:
        counts = range(want.count - 1, 0, -1)
        instead = str(want.count)
    for count in counts:
        noun = "device" if count == 1 else "devices"
        yield case.propose_change(
            f"asking for {count} {noun} instead of {instead} in {case.request_text}",
            lambda asked, count=count: msgspec.structs.replace(
                asked, allocation_mode=EXACT_COUNT, count=count
            ),
        )


def relax_selector(case: RemedyCase) -> Iterator[ProposedChange]:
    """Ask a selector for what the nearest devices have; else without the condition, else without it."""
    witness = case.evidence.describer
    readings = [
        (find_failed_condition(witness.get_profile(candidate), refusal.detail[0]), str(refusal.detail[0]))
        for candidate, refusal in case.list_refused(RefusalReason.UNSUITED)
        if find_selector_owner(case.alternative, refusal.detail[0]).startswith("request ")
    ]
    readings.sort(key=lambda entry: entry[0].distance)
    proposals: list[tuple[str, str, str | None]] = []
    for reading, expression in readings:
        bounds = _QUANTITY.findall(reading.condition)
        if reading.is_amount and reading.value and len(bounds) == 1:
            asked = bounds[0][1:-1]
            lowered = reading.condition.replace(bounds[0], f'"{reading.value}"')
            text = f"asking for {reading.value} instead of {asked} in the selector of {case.request_text}"
            proposals.append((text, expression, expression.replace(reading.condition, lowered)))
    for reading, expression in readings:
        text = (
            "dropping the condition "
            f"`{to_single_line(shorten_condition(reading.condition))}` of {case.request_text}"
        )
        rest = remove_condition(expression, reading.condition)
        if rest is not None:
            proposals.append((text, expression, rest))
    broken = [str(refusal.detail[0]) for _, refusal in case.list_refused(RefusalReason.BROKEN_SELECTOR)]
    for expression in broken:
        for guard in build_guards(expression):
            text = f"guarding the selector of {case.request_text} with `{guard}`"
            proposals.append((text, expression, f"{guard} && ({expression})"))
    for expression in [*(expression for _, expression in readings), *broken]:
        if find_selector_owner(case.alternative, expression).startswith("request "):
            proposals.append(
                (
                    f"dropping the selector `{to_single_line(shorten_condition(expression))}` "
                    f"of {case.request_text}",
                    expression,
                    None,
                )
            )
    for text, old, new in dict.fromkeys(proposals):
        yield case.propose_change(text, lambda asked, old=old, new=new: _replace_selector(asked, old, new))


def _replace_selector(asked: Any, old: str, new: str | None) -> Any:
    kept = []
    for selector in asked.selectors:
        if selector.cel is None or selector.cel.expression != old:
            kept.append(selector)
        elif new is not None:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=new)))
    return msgspec.structs.replace(asked, selectors=tuple(kept))


def relax_constraint(case: RemedyCase) -> Iterator[ProposedChange]:
    """Drop one of the constraints that refused a device."""
    refused = {
        refusal.detail if isinstance(refusal.detail, str) else refusal.detail.attribute
        for _, refusal in case.list_refused(RefusalReason.CONSTRAINT, RefusalReason.ATTRIBUTE_MISSING)
    }
    for rule in case.alternative.constraints:
        if rule.attribute in refused:
            kind = "different" if rule.distinct else "same"
            text = f"dropping the constraint `{kind} {rule.attribute}`"
            yield ProposedChange(
                text, drop_constraint(case.claims, rule.claim_index, rule.position), case.inventory
            )


def free_claim(case: RemedyCase) -> Iterator[ProposedChange]:
    """Wait for one claim to be given back."""
    witness = case.evidence.describer
    holders: dict[str, list[str]] = {}
    for candidate in _list_held_candidates(case):
        for claim in witness.find_holders(candidate):
            holders.setdefault(claim, []).append(witness.get_device_name(candidate).device)
    for claim, devices in list(holders.items())[:_MAX_CLAIMS]:
        text = f"giving back claim {claim} (it holds {join_names(devices, 3)})"
        usage = remove_claim_usage(
            case.inventory.usage, claim, [shelf.pool for shelf in witness.view.pool_views]
        )
        yield ProposedChange(text, case.claims, case.inventory.replace_usage(usage), single_node=True)


def _list_held_candidates(case: RemedyCase) -> Iterable[int]:
    """Devices whose holders stand in the way: taken ones, shared ones, those that use up counters."""
    held = [
        candidate for candidate, _ in case.list_refused(RefusalReason.IN_USE, RefusalReason.CAPACITY_SHORT)
    ]
    shape = case.evidence.describer.view.shape
    for pool in {
        shape.pool_indexes[candidate] for candidate, _ in case.list_refused(RefusalReason.COUNTER_SHORT)
    }:
        held += [
            i
            for i, of_pool in enumerate(shape.pool_indexes)
            if of_pool == pool and shape.profiles[i].counters
        ]
    return dict.fromkeys(held)


def complete_pool(case: RemedyCase) -> Iterator[ProposedChange]:
    """Wait for a pool whose published devices would do."""
    node = case.evidence.describer.view.node
    for flaw in case.evidence.report.pools:
        if flaw.reason is RefusalReason.POOL_INCOMPLETE:
            stock = assume_complete_pool(case.inventory, node, (flaw.driver, flaw.pool))
            if stock is not None:
                missing = flaw.expected - flaw.published
                noun = "slice" if missing == 1 else "slices"
                text = f"the missing {noun} of pool {flaw.driver}/{flaw.pool}"
                yield ProposedChange(text, case.claims, stock, single_node=True)


def use_another_class(case: RemedyCase) -> Iterator[ProposedChange]:
    """Another class with a name like the one that was asked for."""
    old = case.alternative.class_name
    for name in find_similar_names(old, case.inventory.classes):
        text = f"asking for class `{name}` instead of `{old}` in {case.request_text}"
        yield case.propose_change(
            text, lambda asked, name=name: msgspec.structs.replace(asked, device_class_name=name)
        )


def find_similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Names that are like a name, the nearest first: with a typo mended, or with the same first word."""
    alike: dict[str, float] = {}
    for other in sorted(set(known) - {name}):
        likeness = difflib.SequenceMatcher(None, name, other, autojunk=False).ratio()
        if likeness >= _MIN_SIMILARITY or _get_first_word(name) == _get_first_word(other):
            alike[other] = likeness
    return sorted(alike, key=lambda other: -alike[other])[:_MAX_CLASSES]


def _get_first_word(name: str) -> str:
    return re.split(r"[-./]", name, maxsplit=1)[0]


REMEDIES: dict[str, Remedy] = {
    "Tolerate": tolerate,
    "AskForLess": ask_for_less,
    "RelaxSelector": relax_selector,
    "AskForFewer": ask_for_fewer,
    "RelaxConstraint": relax_constraint,
    "CompletePool": complete_pool,
    "FreeClaim": free_claim,
    "AnotherClass": use_another_class,
}
"""Every kind of change, the smallest first."""
