"""Proposed changes: a table of remedies, each of which proposes edits for what prevented an alternative.

Theory of operation: a remedy gets a *case*, one alternative that could not be allocated on one node, with the
refusal of every device. It proposes changes, the smallest first, that would remove those refusals. A proposal
is only a guess: `hints` runs the search with it before it becomes a hint. Admin access is never proposed: it
uses devices that belong to another claim.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.what_if import assume_complete_pool, remove_claim_usage
from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.allocator.requests import MAX_RESULTS, RequestAlternative, normalize_claims
from dray.allocator.search.candidates import get_candidate_set
from dray.api.devices.device_fields import has_field
from dray.api.devices.selector_analysis import analyze_selector
from dray.api.devices.selector_guards import build_presence_test, find_first_use, insert_guards
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
    FailedCondition,
    find_failed_condition,
    remove_condition,
)
from dray.explain.node_reports import BlockedAlternative, NodeEvidence
from dray.explain.refusal_details import format_taint, is_class_selector
from dray.explain.remedies.claim_edits import ClaimTuple, RequestEdit, drop_constraint, edit_request
from dray.explain.wording import join_names, pluralize, to_single_line
from dray.values.quantity import Quantity
from dray.values.request_names import RequestName

_MIN_SIMILARITY = 0.8
_MAX_CLASSES = 3
_MAX_CLAIMS = 8


class ProposedChange(msgspec.Struct, frozen=True, eq=False):
    """A change that might help: in words, and the claims and inventory with it applied."""

    text: str
    claims: ClaimTuple
    inventory: DeviceInventory
    single_node: bool = False


class RemedyCase(msgspec.Struct, frozen=True, eq=False):
    """One alternative that could not be allocated on one node."""

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
        """The candidates that were refused for one of these reasons."""
        for candidate, refusal in self.blocked.refusals.items():
            if refusal is not None and refusal.reason in reasons:
                yield candidate, refusal

    def propose_change(self, text: str, edit: RequestEdit) -> ProposedChange:
        """A change of the request."""
        claims = edit_request(self.claims, self.claim_index, self.request_name, edit)
        return ProposedChange(text, claims, self.inventory)

    @property
    def request_name(self) -> RequestName:
        return RequestName(self.alternative.request, self.alternative.subrequest)

    @property
    def request_text(self) -> str:
        return f"request `{self.alternative.name}`"


Remedy = Callable[[RemedyCase], Iterator[ProposedChange]]


def tolerate(case: RemedyCase) -> Iterator[ProposedChange]:
    """Tolerate the taint of a device, and its other taints after that."""
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
                lambda spec, more=more: msgspec.structs.replace(spec, tolerations=spec.tolerations + more),
            )
            yield change
            found = _find_refusal_after(case, change, candidate)


def _find_refusal_after(case: RemedyCase, change: ProposedChange, candidate: int) -> Refusal | None:
    """The next rule that refuses a candidate whatever else is taken, after a change of the request."""
    changed = normalize_claims(change.claims, case.inventory.classes.get)
    shape = case.evidence.describer.view.shape
    for choice in changed.choices:
        for alternative in choice.alternatives:
            if choice.claim_index == case.claim_index and alternative.name == case.alternative.name:
                return get_candidate_set(shape, alternative).find_refusal(candidate)
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
            capacity.value.form
            for profile in case.evidence.describer.view.shape.profiles
            if (capacity := profile.device.capacity.get(name)) is not None and capacity.value is not None
        )
        amount = Quantity(nanos, form)
        instead = f" instead of {Quantity(asked[name], form)}" if name in asked else " (now all of it)"

        def lower_amount(request: Any, name: str = name, amount: Quantity = amount) -> Any:
            known = request.capacity.requests if request.capacity is not None else {}
            return msgspec.structs.replace(
                request, capacity=CapacityRequirements(requests={**known, name: amount})
            )

        yield case.propose_change(
            f"asking for {amount} of `{name}`{instead} in {case.request_text}", lower_amount
        )


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
    """Ask for fewer devices, the largest number first."""
    alternative = case.alternative
    if alternative.takes_all:
        found = sum(refusal is None for refusal in case.blocked.refusals.values())
        counts, instead_of = range(min(found, MAX_RESULTS), 0, -1), "all"
    else:
        counts, instead_of = range(alternative.count - 1, 0, -1), str(alternative.count)
    for count in counts:
        yield case.propose_change(*describe_fewer_devices(case.request_name, instead_of, count))


def describe_fewer_devices(name: RequestName, instead_of: str, count: int) -> tuple[str, RequestEdit]:
    """The change to a smaller number of devices: its text and its edit."""
    text = f"asking for {pluralize(count, 'device')} instead of {instead_of} in request `{name}`"
    return text, lambda spec: msgspec.structs.replace(spec, allocation_mode=EXACT_COUNT, count=count)


def relax_selector(case: RemedyCase) -> Iterator[ProposedChange]:
    """Ask a selector for the values of the closest devices; else drop the condition, else the selector."""
    failures = sorted(_list_failures(case), key=lambda entry: entry[0].distance)
    broken = [
        (candidate, str(refusal.detail[0]))
        for candidate, refusal in case.list_refused(RefusalReason.BROKEN_SELECTOR)
        if not is_class_selector(case.alternative, refusal.detail[0])
    ]
    expressions = [*(expression for _, expression in failures), *(expression for _, expression in broken)]
    proposals = (
        *_lower_amounts(case, failures),
        *_drop_conditions(case, failures),
        *_guard_selectors(case, broken),
        *_drop_selectors(case, expressions),
    )
    for text, old, new in dict.fromkeys(proposals):
        yield case.propose_change(text, lambda spec, old=old, new=new: _replace_selector(spec, old, new))


_SelectorChange = tuple[str, str, str | None]
"""The text of a change, the expression it replaces, and the new one; None drops the selector."""


def _list_failures(case: RemedyCase) -> Iterator[tuple[FailedCondition, str]]:
    """The conditions that devices fail, of the selectors of the request; those of the class cannot change."""
    for candidate, refusal in case.list_refused(RefusalReason.UNSUITED):
        expression = str(refusal.detail[0])
        if not is_class_selector(case.alternative, expression):
            profile = case.evidence.describer.get_profile(candidate)
            yield find_failed_condition(profile, expression), expression


def _lower_amounts(
    case: RemedyCase, failures: Sequence[tuple[FailedCondition, str]]
) -> Iterator[_SelectorChange]:
    for failed, expression in failures:
        quantities = analyze_selector(failed.condition).quantities
        if failed.is_amount and failed.value and len(quantities) == 1:
            start, end = (failed.offset + at for at in quantities[0].span)
            amounts = f"{failed.value} instead of {quantities[0].text}"
            text = f"asking for {amounts} in the selector of {case.request_text}"
            yield text, expression, f'{expression[:start]}"{failed.value}"{expression[end:]}'


def _drop_conditions(
    case: RemedyCase, failures: Sequence[tuple[FailedCondition, str]]
) -> Iterator[_SelectorChange]:
    for failed, expression in failures:
        rest = remove_condition(expression, failed.condition)
        if rest is not None:
            shown = _shorten(failed.condition)
            yield f"dropping the condition `{shown}` of {case.request_text}", expression, rest


def _guard_selectors(case: RemedyCase, broken: Sequence[tuple[int, str]]) -> Iterator[_SelectorChange]:
    """Presence tests for what the device lacks on which a selector fails, or for what any device lacks."""
    profiles = case.evidence.describer.view.shape.profiles
    for candidate, expression in broken:
        references = analyze_selector(expression).references
        required = dict.fromkeys(reference.key for reference in references if reference.is_required)
        for devices in ([profiles[candidate]], profiles):
            missing = [
                key for key in required if not all(has_field(one.driver, one.device, key) for one in devices)
            ]
            guards = {build_presence_test(key): find_first_use(expression, key) for key in missing}
            if guards:
                text = f"guarding the selector of {case.request_text} with `{' && '.join(guards)}`"
                yield text, expression, insert_guards(guards, expression)


def _drop_selectors(case: RemedyCase, expressions: Sequence[str]) -> Iterator[_SelectorChange]:
    for expression in expressions:
        yield f"dropping the selector `{_shorten(expression)}` of {case.request_text}", expression, None


def _shorten(expression: str) -> str:
    return to_single_line(analyze_selector(expression).short_text)


def _replace_selector(spec: Any, old: str, new: str | None) -> Any:
    kept = []
    for selector in spec.selectors:
        if selector.cel is None or selector.cel.expression != old:
            kept.append(selector)
        elif new is not None:
            kept.append(DeviceSelector(cel=CELDeviceSelector(expression=new)))
    return msgspec.structs.replace(spec, selectors=tuple(kept))


def relax_constraint(case: RemedyCase) -> Iterator[ProposedChange]:
    """Drop one of the constraints that refused a device."""
    refused = {
        refusal.detail if isinstance(refusal.detail, str) else refusal.detail.attribute
        for _, refusal in case.list_refused(RefusalReason.CONSTRAINT, RefusalReason.ATTRIBUTE_MISSING)
    }
    for constraint in case.alternative.constraints:
        if constraint.attribute in refused:
            kind = "different" if constraint.distinct else "same"
            text = f"dropping the constraint `{kind} {constraint.attribute}`"
            claims = drop_constraint(case.claims, constraint.claim_index, constraint.position)
            yield ProposedChange(text, claims, case.inventory)


def free_claim(case: RemedyCase) -> Iterator[ProposedChange]:
    """Release one claim."""
    describer = case.evidence.describer
    holders: dict[str, list[str]] = {}
    for candidate in _list_held_candidates(case):
        for claim in describer.find_holders(candidate):
            holders.setdefault(claim, []).append(describer.get_device_name(candidate).device)
    for claim, devices in list(holders.items())[:_MAX_CLAIMS]:
        text = f"giving back claim {claim} (it holds {join_names(devices, 3)})"
        usage = remove_claim_usage(
            case.inventory.usage, claim, [pool_view.pool for pool_view in describer.view.pool_views]
        )
        yield ProposedChange(text, case.claims, case.inventory.replace_usage(usage), single_node=True)


def _list_held_candidates(case: RemedyCase) -> Iterable[int]:
    """Devices whose holders are in the way: taken ones, shared ones, those that use up counters."""
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
    """Complete a pool whose published devices would fit."""
    node = case.evidence.describer.view.node
    for flaw in case.evidence.report.pools:
        if flaw.reason is RefusalReason.POOL_INCOMPLETE:
            inventory = assume_complete_pool(case.inventory, node, (flaw.driver, flaw.pool))
            if inventory is not None:
                slices = "slice" if flaw.expected - flaw.published == 1 else "slices"
                text = f"the missing {slices} of pool {flaw.driver}/{flaw.pool}"
                yield ProposedChange(text, case.claims, inventory, single_node=True)


def use_another_class(case: RemedyCase) -> Iterator[ProposedChange]:
    """Ask for a class with a similar name."""
    old = case.alternative.class_name
    for name in find_similar_names(old, case.inventory.classes):
        yield case.propose_change(*describe_other_class(case.request_name, old, name))


def describe_other_class(name: RequestName, old: str, new: str) -> tuple[str, RequestEdit]:
    """The change to another class: its text and its edit."""
    text = f"asking for class `{new}` instead of `{old}` in request `{name}`"
    return text, lambda spec: msgspec.structs.replace(spec, device_class_name=new)


def find_similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Names that are similar to a name, the most similar first: a typo corrected, or the same first word."""
    similar: dict[str, float] = {}
    for other in sorted(set(known) - {name}):
        similarity = difflib.SequenceMatcher(None, name, other, autojunk=False).ratio()
        if similarity >= _MIN_SIMILARITY or _get_first_word(name) == _get_first_word(other):
            similar[other] = similarity
    return sorted(similar, key=lambda other: -similar[other])[:_MAX_CLASSES]


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
