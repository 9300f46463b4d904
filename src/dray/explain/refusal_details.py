"""Bearing witness: refusals of numbered candidates become accounts of named devices.

Theory of operation: the search knows candidates by number and says no with as little as possible. A witness
knows one node: its devices by name, who holds them, which earlier picks pin a value. Everything a sentence
could need is looked up here, once, and put into a `RefusalDetails`; after that nobody asks the allocator
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.pool_views import IncompletePool
from dray.allocator.inventory.usage import DeviceUsage, PoolId
from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason, Shortage
from dray.allocator.requests import AllocationRequest, RequestAlternative, format_claim_name
from dray.allocator.search.candidate_review import CandidateReview
from dray.allocator.search.candidates import get_candidate_set
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
    """Knows the names on one node."""

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
            DeviceName(driver=shelf.pool[0], pool=shelf.pool[1], device=name)
            for shelf in view.pool_views
            for name in shelf.names
        ]

    def get_device_name(self, candidate: int) -> DeviceName:
        """The name of a candidate."""
        return self._names[candidate]

    def get_profile(self, candidate: int) -> DeviceProfile:
        """What a candidate is."""
        return self.view.shape.profiles[candidate]

    def find_counter_consumer(self, counter: str) -> DeviceProfile | None:
        """Some device that draws from a counter, to know how its amounts are written."""
        for content in self.view.shape.profiles:
            if any(f"{group}/{name}" == counter for group, name, _ in content.counters):
                return content
        return None

    def list_refusals(self, point: SearchPoint, picks: Sequence[Pick]) -> dict[int, Refusal | None]:
        """What the rules say of every candidate at a point; None for those the request has already.

        A request for all devices only minds those that match, and has every one that nothing keeps away.
        """
        told = CandidateReview(self._allocation_request, self.view.shape, picks).find_refusals(point)
        own = {pick.candidate for pick in picks if pick.point.choice is point.choice}
        otherwise, matching = _LEADS_NOWHERE, 0
        if point.alternative.takes_all:
            otherwise, matching = None, get_candidate_set(self.view.shape, point.alternative).matching
        return {
            candidate: None if candidate in own else refusal or otherwise
            for candidate, refusal in told.items()
            if not matching or matching >> candidate & 1
        }

    def describe_outcomes(
        self,
        point: SearchPoint,
        picks: Sequence[Pick],
        refusals: dict[int, Refusal | None],
        work_budget: WorkBudget,
    ) -> Steps[tuple[DeviceOutcome, ...]]:
        """The same by name, with everything there is to know; in steps, as there may be thousands."""
        accounts: list[DeviceOutcome] = []
        for candidate, refusal in refusals.items():
            why = self.describe_refusal(point, picks, candidate, refusal) if refusal is not None else None
            accounts.append(DeviceOutcome(device=self.get_device_name(candidate), why=why))
            if len(accounts) % PAUSE_INTERVAL == 0:
                yield from work_budget.pause()
        return tuple(accounts)

    def describe_refusal(
        self, point: SearchPoint, picks: Sequence[Pick], candidate: int, refusal: Refusal
    ) -> RefusalDetails:
        """One refusal of one device in full."""
        reason, detail, want = refusal.reason, refusal.detail, point.alternative
        content = self.get_profile(candidate)
        match reason, detail:
            case RefusalReason.UNSUITED, (str(expression), _):
                reading = find_failed_condition(content, expression)
                return RefusalDetails(
                    reason=reason,
                    owner=find_selector_owner(want, expression),
                    expression=expression,
                    condition=reading.condition,
                    subject=reading.subject,
                    value=reading.value,
                )
            case RefusalReason.BROKEN_SELECTOR, (str(expression), str(error)):
                owner = find_selector_owner(want, expression)
                return RefusalDetails(reason=reason, owner=owner, expression=expression, error=error)
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
                return describe_shortage(reason, detail, content, want)

    def find_holders(self, candidate: int) -> tuple[str, ...]:
        """The claims that hold a device."""
        name = self.get_device_name(candidate)
        use = self._usage.get_pool((name.driver, name.pool))
        held = use.holders.get(name.device) or tuple(filter(None, (use.whole.get(name.device),)))
        return tuple(dict.fromkeys(held))

    def _get_other_claim(self, point: SearchPoint, other: SearchPoint) -> str:
        """The claim of another point, when it is another claim."""
        if other.choice.claim_index == point.choice.claim_index:
            return ""
        return format_claim_name(self._allocation_request.claims[other.choice.claim_index])

    def _describe_conflict(
        self, point: SearchPoint, picks: Sequence[Pick], conflict: ConstraintConflict
    ) -> RefusalDetails:
        """Which earlier picks pin the value that the device does not go with."""
        rules = [rule for rule in point.alternative.constraints if rule.attribute == conflict.attribute]
        peers = []
        for pick in picks:
            covered = any(rule in pick.point.alternative.constraints for rule in rules)
            values = self.get_profile(pick.candidate).get_values(conflict.attribute)
            if covered and (not conflict.distinct or values & conflict.found):
                peers.append(self.get_device_name(pick.candidate).device)
        clash = conflict.found & conflict.wanted if conflict.distinct else conflict.wanted
        # A text is never a number, though both may read `1`: where types differ, they are the answer.
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
        """Of the devices a selector refuses, the one that comes nearest and has something to show.

        Devices of the class come before all others, however near those are.
        """
        readings: list[tuple[Any, int, FailedCondition]] = []
        for candidate, refusal in refusals.items():
            if refusal is not None and refusal.reason is RefusalReason.UNSUITED:
                expression = refusal.detail[0]
                reading = find_failed_condition(self.get_profile(candidate), expression)
                stranger = find_selector_owner(alternative, expression).startswith("class ")
                readings.append(((stranger, *reading.distance), candidate, reading))
        if not readings:
            return None
        _, candidate, reading = min(readings, key=lambda entry: entry[:2])
        if not reading.subject and not reading.is_only_failure:
            return None
        return NearestDevice(
            device=self.get_device_name(candidate),
            condition=reading.condition,
            subject=reading.subject,
            value=reading.value,
            is_amount=reading.is_amount,
            all_but=reading.is_only_failure,
        )

    def compute_distance(self, refusals: dict[int, Refusal | None]) -> tuple[Any, ...]:
        """How far the nearest device is from meeting a selector; nothing when selectors refuse none."""
        return min(
            (
                find_failed_condition(self.get_profile(candidate), refusal.detail[0]).distance
                for candidate, refusal in refusals.items()
                if refusal is not None and refusal.reason is RefusalReason.UNSUITED
            ),
            default=(),
        )

    def list_flaws(self) -> tuple[PoolFlaw, ...]:
        """The pools this node cannot use."""
        return list_pool_flaws(self.view, self._hidden)


def list_pool_flaws(view: NodeView, hidden: Sequence[PoolId]) -> tuple[PoolFlaw, ...]:
    """The pools that a node cannot use, in whole or, where a closed gate hides slices of them, in part."""
    node = view.node.metadata.name
    flaws = [
        describe_pool_flaw(shelf.pool, shelf.flaw, node)
        for shelf in view.pool_views
        if shelf.flaw is not None
    ]
    return (*flaws, *(describe_pool_flaw(pool, Refusal(RefusalReason.COUNTERS_OFF), node) for pool in hidden))


def describe_pool_flaw(pool: tuple[str, str], flaw: Refusal, node: str) -> PoolFlaw:
    """A pool that lends nothing, with the numbers that show it."""
    pattern = pool[1].replace(node, NODE_PLACEHOLDER) if node else pool[1]
    said: dict[str, Any] = {"driver": pool[0], "pool": pool[1], "pattern": pattern, "reason": flaw.reason}
    if isinstance(flaw.detail, IncompletePool):
        detail = flaw.detail
        said |= {
            "published": detail.published,
            "expected": detail.expected,
            "generation": detail.generation,
        }
    elif flaw.detail is not None:
        said["text"] = str(flaw.detail)
    return PoolFlaw(**said)


def format_label(point: SearchPoint) -> str:
    """A point as people count: the request, and which device of it where there are several."""
    several = point.alternative.takes_all or point.alternative.count > 1
    return f"{point.alternative.name}[{point.device_index}]" if several else point.alternative.name


def find_selector_owner(alternative: RequestAlternative, expression: str) -> str:
    """Who brought a selector: a class or a request."""
    return next((owner for owner, text in alternative.selectors if text == expression), "")


def format_taint(taint: DeviceTaint) -> str:
    """A taint as it is written on command lines."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def describe_shortage(
    reason: RefusalReason, detail: Any, profile: DeviceProfile | None, alternative: RequestAlternative
) -> RefusalDetails:
    """Amounts, names and whatever else a refusal carries."""
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
    """How amounts of a capacity or counter are written on this device."""
    capacity = profile.device.capacity.get(name)
    if capacity is not None and capacity.value is not None:
        return capacity.value.form
    group, _, counter = name.partition("/")
    for drawn in profile.device.consumes_counters:
        found = drawn.counters.get(counter) if drawn.counter_set == group else None
        if found is not None and found.value is not None:
            return found.value.form
    return None
