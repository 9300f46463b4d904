"""Refusal details: turns refusals of numbered candidates into outcomes of named devices.

Theory of operation: the search identifies candidates by number and reports refusals with as little detail as
possible. A `RefusalDescriber` belongs to one node: it has the names of its devices, the claims that hold
them, and the earlier picks that pin a value. It looks up everything a sentence needs once and puts it into a
`RefusalDetails`; rendering looks nothing up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.pool_views import IncompletePool
from dray.allocator.inventory.usage import DeviceUsage, PoolId
from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason, Shortage
from dray.allocator.requests import (
    AllocationRequest,
    RequestAlternative,
    SelectorOwnerKind,
    format_claim_name,
)
from dray.allocator.search.candidate_review import CandidateReview
from dray.allocator.search.trace import Pick, SearchPoint
from dray.api.devices.taint_rules import get_rule_name
from dray.api.resource import DeviceTaint
from dray.explain.diagnosis import DeviceName, DeviceOutcome, NearestDevice, PoolFlaw, RefusalDetails
from dray.explain.failed_conditions import FailedCondition, find_failed_condition, format_values
from dray.explain.work_budget import PAUSE_INTERVAL, Steps, WorkBudget
from dray.values.quantity import Quantity, QuantityForm

NODE_PLACEHOLDER = "<node>"

_LEADS_NOWHERE: Refusal | None = Refusal(RefusalReason.LEADS_NOWHERE)


class RefusalDescriber:
    """Describes refusals on one node."""

    def __init__(
        self,
        allocation_request: AllocationRequest,
        view: NodeView,
        usage: DeviceUsage,
        hidden: Sequence[PoolId] = (),
    ) -> None:
        self._allocation_request = allocation_request
        self._hidden = hidden
        self._usage = usage
        self.view = view
        self._names = [
            DeviceName(driver=pool_view.pool[0], pool=pool_view.pool[1], device=name)
            for pool_view in view.pool_views
            for name in pool_view.names
        ]

    def get_device_name(self, candidate: int) -> DeviceName:
        """The name of a candidate."""
        return self._names[candidate]

    def get_profile(self, candidate: int) -> DeviceProfile:
        """The profile of a candidate."""
        return self.view.shape.profiles[candidate]

    def find_counter_consumer(self, counter: str) -> DeviceProfile | None:
        """A device that draws from a counter; its amounts show the format."""
        for profile in self.view.shape.profiles:
            if any(f"{group}/{name}" == counter for group, name, _ in profile.counters):
                return profile
        return None

    def list_refusals(
        self, point: SearchPoint, picks: Sequence[Pick], reported: Mapping[int, Refusal]
    ) -> dict[int, Refusal | None]:
        """The refusal of every candidate at a point; None for those that the request has already.

        The search reported the candidates that it tried. The review adds those that it skipped, and for a
        request for all devices the first of several rules. Such a request has every device that no rule
        refuses.
        """
        review = CandidateReview(self._allocation_request, self.view.shape, picks)
        own = {pick.candidate for pick in picks if pick.point.choice is point.choice}
        if point.alternative.takes_all:
            refusals = review.find_matching_refusals(point)
            return {number: None if number in own else refusal for number, refusal in refusals.items()}
        return {
            number: None if number in own else reported.get(number) or refusal or _LEADS_NOWHERE
            for number, refusal in review.find_refusals(point).items()
        }

    def describe_outcomes(
        self,
        point: SearchPoint,
        picks: Sequence[Pick],
        refusals: dict[int, Refusal | None],
        work_budget: WorkBudget,
    ) -> Steps[tuple[DeviceOutcome, ...]]:
        """The outcomes of named devices with all details; in steps, as there may be thousands."""
        outcomes: list[DeviceOutcome] = []
        for candidate, refusal in refusals.items():
            why = self.describe_refusal(point, picks, candidate, refusal) if refusal is not None else None
            outcomes.append(DeviceOutcome(device=self.get_device_name(candidate), why=why))
            if len(outcomes) % PAUSE_INTERVAL == 0:
                yield from work_budget.pause()
        return tuple(outcomes)

    def describe_refusal(
        self, point: SearchPoint, picks: Sequence[Pick], candidate: int, refusal: Refusal
    ) -> RefusalDetails:
        """One refusal of one device with all details."""
        reason, detail, alternative = refusal.reason, refusal.detail, point.alternative
        profile = self.get_profile(candidate)
        match reason, detail:
            case RefusalReason.UNSUITED, (str(expression), _):
                failed = find_failed_condition(profile, expression)
                return RefusalDetails(
                    reason=reason,
                    expression=expression,
                    condition=failed.condition,
                    subject=failed.subject,
                    value=failed.value,
                    **_describe_owner(alternative, expression),
                )
            case RefusalReason.BROKEN_SELECTOR, (str(expression), str(error)):
                owner = _describe_owner(alternative, expression)
                return RefusalDetails(reason=reason, expression=expression, error=error, **owner)
            case RefusalReason.IN_USE, _:
                return RefusalDetails(reason=reason, holders=self.find_holders(candidate))
            case RefusalReason.TAKEN_HERE, SearchPoint():
                return RefusalDetails(
                    reason=reason, request=detail.alternative.name, claim=self._get_other_claim(point, detail)
                )
            case RefusalReason.LEADS_NOWHERE, SearchPoint():
                return RefusalDetails(
                    reason=reason, request=format_label(detail), claim=self._get_other_claim(point, detail)
                )
            case RefusalReason.CONSTRAINT, ConstraintConflict():
                return self._describe_conflict(point, picks, detail)
            case RefusalReason.TAINTED, DeviceTaint():
                return RefusalDetails(reason=reason, taint=format_taint(detail), rule=get_rule_name(detail))
            case _:
                return describe_shortage(reason, detail, profile, alternative)

    def find_holders(self, candidate: int) -> tuple[str, ...]:
        """The claims that hold a device."""
        name = self.get_device_name(candidate)
        usage = self._usage.get_pool((name.driver, name.pool))
        holders = usage.holders.get(name.device) or tuple(filter(None, (usage.whole.get(name.device),)))
        return tuple(dict.fromkeys(holders))

    def _get_other_claim(self, point: SearchPoint, other: SearchPoint) -> str:
        """The claim of another point, when it differs."""
        if other.choice.claim_index == point.choice.claim_index:
            return ""
        return format_claim_name(self._allocation_request.claims[other.choice.claim_index])

    def _describe_conflict(
        self, point: SearchPoint, picks: Sequence[Pick], conflict: ConstraintConflict
    ) -> RefusalDetails:
        """A constraint that a device violates, with the earlier picks that pin the value."""
        constraints = [one for one in point.alternative.constraints if one.attribute == conflict.attribute]
        peers = []
        for pick in picks:
            covered = any(one in pick.point.alternative.constraints for one in constraints)
            values = self.get_profile(pick.candidate).get_values(conflict.attribute)
            if covered and (not conflict.distinct or values & conflict.found):
                peers.append(self.get_device_name(pick.candidate).device)
        clash = conflict.found & conflict.wanted if conflict.distinct else conflict.wanted
        # A string never equals a number, though both may read `1`: where types differ, name them.
        kinds = [{kind for kind, _ in values} for values in (conflict.found, clash)]
        found, wanted = (f"{min(kind)} " if kinds[0].isdisjoint(kinds[1]) else "" for kind in kinds)
        return RefusalDetails(
            reason=RefusalReason.CONSTRAINT,
            name=conflict.attribute,
            distinct=conflict.distinct,
            value=found + format_values([value for _, value in conflict.found]),
            expected=wanted + " or ".join(sorted(format_values([value]) for _, value in clash)),
            peers=tuple(dict.fromkeys(peers)),
        )

    def find_nearest(
        self, alternative: RequestAlternative, refusals: dict[int, Refusal | None]
    ) -> NearestDevice | None:
        """Of the devices that a selector refuses, the one that comes closest and has something to show.

        Devices of the class come before all others, however close those are.
        """
        failures: list[tuple[Any, int, FailedCondition]] = []
        for candidate, refusal in refusals.items():
            if refusal is not None and refusal.reason is RefusalReason.UNSUITED:
                expression = refusal.detail[0]
                failed = find_failed_condition(self.get_profile(candidate), expression)
                outside = is_class_selector(alternative, expression)
                failures.append(((outside, *failed.distance), candidate, failed))
        if not failures:
            return None
        _, candidate, failed = min(failures, key=lambda entry: entry[:2])
        if not failed.subject and not failed.is_only_failure:
            return None
        return NearestDevice(
            device=self.get_device_name(candidate),
            condition=failed.condition,
            subject=failed.subject,
            value=failed.value,
            is_amount=failed.is_amount,
            all_but=failed.is_only_failure,
        )

    def compute_distance(self, refusals: dict[int, Refusal | None]) -> tuple[Any, ...]:
        """How far the closest device is from meeting a selector; empty when selectors refuse none."""
        return min(
            (
                find_failed_condition(self.get_profile(candidate), refusal.detail[0]).distance
                for candidate, refusal in refusals.items()
                if refusal is not None and refusal.reason is RefusalReason.UNSUITED
            ),
            default=(),
        )

    def list_flaws(self) -> tuple[PoolFlaw, ...]:
        """The pools that this node cannot use."""
        return list_pool_flaws(self.view, self._hidden)


def list_pool_flaws(view: NodeView, hidden: Sequence[PoolId]) -> tuple[PoolFlaw, ...]:
    """The pools that a node cannot use, in whole or, where a closed gate hides slices of them, in part."""
    node = view.node.metadata.name
    flaws = [
        describe_pool_flaw(pool_view.pool, pool_view.flaw, node)
        for pool_view in view.pool_views
        if pool_view.flaw is not None
    ]
    return (*flaws, *(describe_pool_flaw(pool, Refusal(RefusalReason.COUNTERS_OFF), node) for pool in hidden))


def describe_pool_flaw(pool: tuple[str, str], flaw: Refusal, node: str) -> PoolFlaw:
    """A pool whose devices cannot be allocated, with the numbers that show it."""
    pattern = pool[1].replace(node, NODE_PLACEHOLDER) if node else pool[1]
    published = expected = generation = 0
    text = ""
    if isinstance(flaw.detail, IncompletePool):
        detail = flaw.detail
        published, expected, generation = detail.published, detail.expected, detail.generation
    elif flaw.detail is not None:
        text = str(flaw.detail)
    return PoolFlaw(
        driver=pool[0],
        pool=pool[1],
        pattern=pattern,
        reason=flaw.reason,
        published=published,
        expected=expected,
        generation=generation,
        text=text,
    )


def format_label(point: SearchPoint) -> str:
    """The label of a point: the request, and which device of it where there are several."""
    several = point.alternative.takes_all or point.alternative.count > 1
    return f"{point.alternative.name}[{point.device_index}]" if several else point.alternative.name


def is_class_selector(alternative: RequestAlternative, expression: str) -> bool:
    """Whether a selector comes from the class, not from the request."""
    owner = alternative.find_owner(expression)
    return owner is not None and owner.kind is SelectorOwnerKind.CLASS


def _describe_owner(alternative: RequestAlternative, expression: str) -> dict[str, Any]:
    owner = alternative.find_owner(expression)
    return {} if owner is None else {"owner": str(owner), "owner_kind": owner.kind}


def format_taint(taint: DeviceTaint) -> str:
    """A taint as command lines write it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def describe_shortage(
    reason: RefusalReason, detail: Any, profile: DeviceProfile | None, alternative: RequestAlternative
) -> RefusalDetails:
    """A refusal with its amounts and names."""
    if isinstance(detail, str):
        return RefusalDetails(reason=reason, name=detail)
    if not isinstance(detail, Shortage):
        return RefusalDetails(reason=reason)
    form = _find_quantity_form(detail.name, profile) if profile is not None else None
    if form is None:
        return RefusalDetails(
            reason=reason, name=detail.name, wanted=str(detail.wanted), left=str(detail.left)
        )
    asked = dict(alternative.amounts).get(detail.name)
    return RefusalDetails(
        reason=reason,
        name=detail.name,
        wanted=str(Quantity(detail.wanted, form)),
        left=str(Quantity(detail.left, form)),
        expected=str(Quantity(asked, form)) if asked is not None and asked != detail.wanted else "",
        is_total=profile is not None and profile.totals.get(detail.name) == detail.left,
    )


def _find_quantity_form(name: str, profile: DeviceProfile) -> QuantityForm | None:
    """The format of the amounts of a capacity or counter on this device."""
    capacity = profile.device.capacity.get(name)
    if capacity is not None and capacity.value is not None:
        return capacity.value.form
    group, _, counter = name.partition("/")
    for consumption in profile.device.consumes_counters:
        found = consumption.counters.get(counter) if consumption.counter_set == group else None
        if found is not None and found.value is not None:
            return found.value.form
    return None
