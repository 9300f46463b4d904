"""Rules of the reference model: whether a candidate can be taken, given the picks so far.

Every rule reads the whole list of picks and the existing claims again, so there is nothing to undo when a
pick is removed. Where Kubernetes and dray differ, a `Departure` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dray.simulation.vectors.reference.amounts import compute_consumption, to_nanos
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import MAX_INT64, NANOS, ModelAbortError, ModelCase
from dray.simulation.vectors.reference.pools import ModelCandidate, ModelNodeView
from dray.simulation.vectors.reference.requests import ModelAlternative
from dray.simulation.vectors.reference.rules import covers_request, keeps_constraint, tolerates

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
_NOT_HELD: tuple[bool, bool, dict[str, int]] = (False, False, {})


@dataclass(frozen=True, eq=False, slots=True)
class ModelPick:
    """A device taken for an alternative; `consumed` is set for a share."""

    alternative: ModelAlternative
    candidate: ModelCandidate
    consumed: dict[str, int] | None


class ModelRules:
    """The picks of a search, and the rules for the next one."""

    def __init__(self, case: ModelCase, view: ModelNodeView) -> None:
        self._case = case
        self._view = view
        self._matched: dict[tuple[ModelAlternative, ModelCandidate], bool | ModelAbortError] = {}
        self._amounts: dict[tuple[ModelAlternative, ModelCandidate], dict[str, int] | None] = {}
        self.picks: list[ModelPick] = []
        self.used: dict[ModelCandidate, list[int]] = {}
        """Claims that took an unshared device in this search."""
        self._held = {result[0]: result[1:] for result in _collect_held(case)}

    def is_shared(self, candidate: ModelCandidate) -> bool:
        return bool(candidate.device.allow_multiple_allocations) and self._case.is_gate_enabled(
            "DRAConsumableCapacity"
        )

    def matches(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether the selectors are true and the device could ever give what is asked."""
        known = self._matched.get((alternative, candidate))
        if known is None:
            try:
                known = self._evaluate_match(candidate, alternative)
            except ModelAbortError as abort:
                known = abort
            self._matched[alternative, candidate] = known
        if isinstance(known, ModelAbortError):
            raise known
        return known

    def _evaluate_match(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        if candidate.device.binding_conditions and not self._case.is_gate_enabled(
            "DRADeviceBindingConditions"
        ):
            return False
        for expression in alternative.expressions:
            result = self._case.evaluator(expression, candidate.published_slice.spec.driver, candidate.device)
            if isinstance(result, str):
                # A message about an expression that does not compile names no device.
                raise ModelAbortError("selector", about="" if "failed: " in result else str(candidate))
            if not result:
                return False
        return candidate.is_reachable and self.compute_consumed(candidate, alternative) is not None

    def compute_consumed(
        self, candidate: ModelCandidate, alternative: ModelAlternative
    ) -> dict[str, int] | None:
        """What an allocation takes of the device; None when it can never give that."""
        if not self._case.is_gate_enabled("DRAConsumableCapacity"):
            return {}
        if (alternative, candidate) not in self._amounts:
            self._amounts[alternative, candidate] = compute_consumption(
                candidate.device, alternative.amounts, self._case
            )
        return self._amounts[alternative, candidate]

    # --- what is taken ---

    def is_used(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether the device is in use; for admin access only by its own claim."""
        here = self.used.get(candidate, ())
        if alternative.admin:
            return alternative.claim_index in here
        whole, shares, _ = self._held.get(candidate.path, _NOT_HELD)
        if whole or here:
            return True
        return shares and not self.is_shared(candidate) and self._case.departs(Departure.HELD_SHARES)

    def is_free(
        self, candidate: ModelCandidate, alternative: ModelAlternative, at_last: bool = False
    ) -> bool:
        """Whether no rule except constraints refuses it; for `All`, capacity is checked last."""
        if not at_last and not self.has_capacity(candidate, alternative):
            return False
        departs = self._case.departs
        if not departs(Departure.NODE_OPERATIONS) and not self._can_skip_operations(candidate):
            return False
        if departs(Departure.SELECTOR_TERMS) and has_several_terms(candidate):
            return False
        if candidate.device.consumes_counters and not self._has_counters_left(candidate, alternative):
            return False
        return not self._case.is_gate_enabled("DRADeviceTaints") or all(
            tolerates(alternative.spec.tolerations, taint)
            for taint in candidate.device.taints
            if taint.effect in _BLOCKING_EFFECTS
        )

    def _can_skip_operations(self, candidate: ModelCandidate) -> bool:
        """Whether the node supports skipping the operations that the driver skips."""
        asked = candidate.skips_operations and self._case.is_feature_enabled("OptionalNodeOperations")
        return not asked or self._case.vector.extras.skips_declared

    def has_capacity(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether its capacities have enough left."""
        _, _, amounts = self._held.get(candidate.path, _NOT_HELD)
        shared = self.is_shared(candidate)
        if not self._case.is_gate_enabled("DRAConsumableCapacity") or not (shared or amounts):
            return True
        for name, wanted in (self.compute_consumed(candidate, alternative) or {}).items():
            wanted += amounts.get(name, 0)
            wanted += sum(
                pick.consumed.get(name, 0)
                for pick in self.picks
                if pick.candidate is candidate and pick.consumed
            )
            if wanted > to_nanos(candidate.device.capacity[name].value):
                return False
        return True

    def _has_counters_left(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether the counters of its pool have enough left, and its groups go with those of the others."""
        if not self._case.is_gate_enabled("DRAPartitionableDevices"):
            return False
        if alternative.admin and self._case.departs(Departure.ADMIN_COUNTERS):
            return True
        held = [other for other in self._view.consumers[candidate.pool] if other.path in self._held]
        fresh: list[ModelCandidate] = []
        for pick in self.picks:
            other = pick.candidate
            if other.pool != candidate.pool or not other.device.consumes_counters:
                continue
            free = pick.alternative.admin and self._case.departs(Departure.ADMIN_COUNTERS)
            if not free and not self._is_charged(other, fresh):
                fresh.append(other)
        if self._is_charged(candidate, fresh):
            return True
        left = dict(self._view.totals[candidate.pool])
        least = 0 if self._case.departs(Departure.NEGATIVE_DRAWS) else -MAX_INT64 * NANOS
        for other in (*held, *fresh, candidate):
            for drawn in other.device.consumes_counters:
                for name, counter in drawn.counters.items():
                    left[drawn.counter_set, name] -= max(to_nanos(counter.value), least)
        return min(left.values(), default=0) >= 0 and self._has_common_group(candidate, [*held, *fresh])

    def _is_charged(self, candidate: ModelCandidate, fresh: Sequence[ModelCandidate]) -> bool:
        """Whether a share of the device has drawn already, which is done once for all of them."""
        _, shares, _ = self._held.get(candidate.path, _NOT_HELD)
        return self.is_shared(candidate) and (shares or any(other is candidate for other in fresh))

    def _has_common_group(self, candidate: ModelCandidate, others: Sequence[ModelCandidate]) -> bool:
        """Whether one compatibility group is common to all who draw from a counter set."""
        departs = self._case.departs(Departure.COMPATIBILITY_GROUPS)
        if departs or not self._case.is_feature_enabled("CompatibilityGroups"):
            return True
        for drawn in candidate.device.consumes_counters:
            name = drawn.counter_set
            members = [
                other.groups.get(name, frozenset())
                for other in others
                if any(each.counter_set == name for each in other.device.consumes_counters)
            ]
            own = candidate.groups.get(name, frozenset())
            if members and (own or any(members)) and not own.intersection(*members):
                return False
        return True

    def keeps_constraints(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        claim = self._case.vector.claims[alternative.claim_index]
        for constraint in claim.spec.devices.constraints:
            if covers_request(constraint, alternative):
                before = [
                    pick.candidate
                    for pick in self.picks
                    if pick.alternative.claim_index == alternative.claim_index
                    and covers_request(constraint, pick.alternative)
                ]
                if not keeps_constraint(constraint, [*before, candidate], self._case):
                    return False
        return True


def has_several_terms(candidate: ModelCandidate) -> bool:
    """Whether its node selector has several terms, which no allocation can express."""
    holder = candidate.node_selection
    if holder.node_name or candidate.device.binds_to_node or holder.node_selector is None:
        return False
    return len(holder.node_selector.node_selector_terms) > 1


def _collect_held(case: ModelCase) -> list[tuple[tuple[str, str, str], bool, bool, dict[str, int]]]:
    """Existing usage: device, whether as a whole, whether in shares, and the sum of the amounts."""
    found: dict[tuple[str, str, str], tuple[bool, bool, dict[str, int]]] = {}
    for claim in case.vector.held:
        assert claim.status.allocation is not None
        for result in claim.status.allocation.devices.results:
            place = (result.driver, result.pool, result.device)
            whole, shares, amounts = found.get(place, (False, False, {}))
            shared = result.share_id is not None or bool(result.consumed_capacity)
            for name, amount in result.consumed_capacity.items():
                amounts[name] = amounts.get(name, 0) + max(amount.nanos, 0)
            found[place] = (whole or not shared, shares or shared, amounts)
    return [(place, *state) for place, state in found.items()]
