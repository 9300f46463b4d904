"""The search: every request, every alternative, every combination of devices, in order.

Theory of operation: recursion over the requests of all claims. A partial solution is the list of its picks,
and every rule is asked of the whole list again. The first full list is the answer. There is no pruning but
that of Kubernetes itself (too many devices for one claim), so it takes the steps that Kubernetes takes, and
ends in `ModelTooLargeError` after `MAX_STEPS` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.reference.amounts import compute_consumption, to_nanos
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import (
    MAX_INT64,
    NANOS,
    ModelAbortError,
    ModelCase,
    ModelTooLargeError,
)
from dray.simulation.vectors.reference.pools import ModelCandidate, gather_pools
from dray.simulation.vectors.reference.requests import (
    MAX_RESULTS,
    ModelAlternative,
    ModelChoice,
    read_choices,
)
from dray.simulation.vectors.reference.rules import covers_request, keeps_constraint, tolerates

MAX_STEPS = 400_000
"""Candidates to look at."""

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")
_NOT_HELD: tuple[bool, bool, dict[str, int]] = (False, False, {})


class _SearchResult(Enum):
    """Whether the rest was solved; `OVER` when every alternative needs more devices than a claim can hold."""

    YES = "yes"
    NO = "no"
    OVER = "over"


@dataclass(frozen=True, eq=False, slots=True)
class ModelPick:
    """A device taken for a want; `consumed` is set for a share."""

    alternative: ModelAlternative
    candidate: ModelCandidate
    consumed: dict[str, int] | None


class ModelSearch:
    """One search."""

    def __init__(self, case: ModelCase, max_steps: int = MAX_STEPS) -> None:
        self._case = case
        self._steps_left = max_steps
        self.get_view = gather_pools(case)
        self._choices: list[ModelChoice] = []
        self._all_devices: dict[ModelAlternative, list[ModelCandidate]] = {}
        self._matched: dict[tuple[ModelAlternative, ModelCandidate], bool | ModelAbortError] = {}
        self._amounts: dict[tuple[ModelAlternative, ModelCandidate], dict[str, int] | None] = {}
        self._picks: list[ModelPick] = []
        self._used: dict[ModelCandidate, list[int]] = {}
        self._held = {result[0]: result[1:] for result in _collect_held(case)}

    def run(self) -> tuple[ModelPick, ...] | None:
        """The first solution, if there is one; raises `ModelAbortError` or `ModelTooLargeError`."""
        for number, claim in enumerate(self._case.vector.claims):
            choices = read_choices(self._case, number, claim)
            for choice in choices:
                for want in choice.alternatives:
                    self._prepare(want)
            least = sum(min(self._count_devices(want) for want in choice.alternatives) for choice in choices)
            if least < 0:
                raise ModelAbortError("cap out of range", kind=AnswerKind.CRASH)
            if least > MAX_RESULTS:
                raise ModelAbortError(f"number of requested devices {least} exceeds")
            self._choices += choices
        return tuple(self._picks) if self._choose(0) is _SearchResult.YES else None

    def is_faulty(self, candidate: ModelCandidate) -> bool:
        """Whether some request cannot be judged on a device."""
        for number, claim in enumerate(self._case.vector.claims):
            for choice in read_choices(self._case, number, claim):
                for want in choice.alternatives:
                    try:
                        self._matches(candidate, want)
                    except ModelAbortError:
                        return True
        return False

    # --- before the search ---

    def _prepare(self, alternative: ModelAlternative) -> None:
        """Kubernetes lists the devices of `All` beforehand, and aborts where it cannot."""
        if not alternative.takes_all:
            return
        for pool in self.get_view.pools:
            if pool.flaw and not self._case.departs(Departure.ALL_POOL):
                raise ModelAbortError("asks for all devices", pool.flaw, about="/".join(pool.pool))
            if not self._case.departs(Departure.ALL_UNREACHED):
                for candidate in pool.candidates:
                    self._matches(candidate, alternative)

    def _count_devices(self, alternative: ModelAlternative) -> int:
        if not alternative.takes_all:
            return alternative.spec.count
        if self._case.departs(Departure.ALL_LIMIT):
            return 0
        lazy = self._case.departs(Departure.ALL_UNREACHED)
        return self._count_matching(alternative) if lazy else len(self._list_devices(alternative))

    def _list_devices(self, alternative: ModelAlternative) -> list[ModelCandidate]:
        if alternative not in self._all_devices:
            self._all_devices[alternative] = [
                candidate for candidate in self.get_view.candidates if self._matches(candidate, alternative)
            ]
        return self._all_devices[alternative]

    # --- requests, alternatives, devices ---

    def _choose(self, index: int) -> _SearchResult:
        """Solve the rest, from a request on."""
        if index == len(self._choices):
            return _SearchResult.YES
        choice = self._choices[index]
        before = sum(pick.alternative.claim_index == choice.claim_index for pick in self._picks)
        ends = set()
        for want in choice.alternatives:
            if want.takes_all:
                found = self._take_all(index, want, before)
            elif before + want.spec.count > MAX_RESULTS:
                found = _SearchResult.OVER
            else:
                found = self._take_devices(index, want, want.spec.count, 0)
            if found is _SearchResult.YES:
                return found
            ends.add(found)
        first = index == 0 or self._choices[index - 1].claim_index != choice.claim_index
        return _SearchResult.OVER if ends == {_SearchResult.OVER} and not first else _SearchResult.NO

    def _take_devices(
        self, index: int, alternative: ModelAlternative, missing: int, start: int
    ) -> _SearchResult:
        if missing <= 0:
            return self._choose(index + 1)
        candidates = self.get_view.candidates
        for position in range(start, len(candidates)):
            self._count_step()
            candidate = candidates[position]
            if self._is_used(candidate, alternative) or not self._matches(candidate, alternative):
                continue
            if not self._is_free(candidate, alternative) or not self._keeps_constraints(
                candidate, alternative
            ):
                continue
            self._push(candidate, alternative)
            found = self._take_devices(index, alternative, missing - 1, position + 1)
            if found is _SearchResult.YES:
                return found
            self._pop()
            # Other devices do not make fewer of them.
            if found is _SearchResult.OVER:
                return found
        return _SearchResult.NO

    def _take_all(self, index: int, alternative: ModelAlternative, before: int) -> _SearchResult:
        if self.get_view.flaws:
            return _SearchResult.NO
        try:
            candidates = self._list_devices(alternative)
        except ModelAbortError:
            # More devices than a claim can hold refuse the alternative before any of them is judged.
            if before + self._count_matching(alternative) > MAX_RESULTS:
                return _SearchResult.OVER
            raise
        if before + len(candidates) > MAX_RESULTS:
            return _SearchResult.OVER
        mark = len(self._picks)
        if candidates and all(self._add_device(candidate, alternative) for candidate in candidates):
            found = self._choose(index + 1)
            if found is _SearchResult.YES:
                return found
        else:
            found = _SearchResult.NO
        while len(self._picks) > mark:
            self._pop()
        return found

    def _add_device(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Take a device that must be had; Kubernetes aborts when a constraint is against it."""
        self._count_step()
        if self._is_used(candidate, alternative) or not self._is_free(candidate, alternative, at_last=True):
            return False
        if not self._keeps_constraints(candidate, alternative):
            if not self._case.departs(Departure.ALL_CONSTRAINT):
                raise ModelAbortError(
                    "because a claim constraint would not be satisfied", about=str(candidate)
                )
            return False
        if not self._has_capacity(candidate, alternative):
            return False
        self._push(candidate, alternative)
        return True

    def _push(self, candidate: ModelCandidate, alternative: ModelAlternative) -> None:
        shared = self._is_shared(candidate)
        self._picks.append(
            ModelPick(
                alternative, candidate, self._compute_consumed(candidate, alternative) if shared else None
            )
        )
        if not shared:
            self._used.setdefault(candidate, []).append(alternative.claim_index)

    def _pop(self) -> None:
        pick = self._picks.pop()
        if pick.consumed is None:
            claims = self._used[pick.candidate]
            claims.pop()
            if not claims:
                del self._used[pick.candidate]

    def _count_matching(self, alternative: ModelAlternative) -> int:
        """How many devices match, as far as that can be said."""
        count = 0
        for candidate in self.get_view.candidates:
            try:
                count += self._matches(candidate, alternative)
            except ModelAbortError:
                continue
        return count

    def _count_step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise ModelTooLargeError

    # --- one device ---

    def _is_shared(self, candidate: ModelCandidate) -> bool:
        return bool(candidate.device.allow_multiple_allocations) and self._case.is_gate_enabled(
            "DRAConsumableCapacity"
        )

    def _matches(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
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
            verdict = self._case.evaluator(
                expression, candidate.published_slice.spec.driver, candidate.device
            )
            if isinstance(verdict, str):
                # A message about an expression that does not compile names no device.
                raise ModelAbortError("selector", about="" if "failed: " in verdict else str(candidate))
            if not verdict:
                return False
        return candidate.is_reachable and self._compute_consumed(candidate, alternative) is not None

    def _compute_consumed(
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

    def _is_used(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether somebody has the device; admin access only minds its own claim."""
        here = self._used.get(candidate, ())
        if alternative.admin:
            return alternative.claim_index in here
        whole, shares, _ = self._held.get(candidate.path, _NOT_HELD)
        if whole or here:
            return True
        return shares and not self._is_shared(candidate) and self._case.departs(Departure.HELD_SHARES)

    def _is_free(
        self, candidate: ModelCandidate, alternative: ModelAlternative, at_last: bool = False
    ) -> bool:
        """Whether nothing but constraints is against it; for `All`, room is looked for at last."""
        if not at_last and not self._has_capacity(candidate, alternative):
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
        """Whether the node knows what the driver wants to leave out there."""
        asked = candidate.skips_operations and self._case.is_feature_enabled("OptionalNodeOperations")
        return not asked or self._case.vector.extras.skips_declared

    def _has_capacity(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        """Whether its capacities have enough left."""
        _, _, amounts = self._held.get(candidate.path, _NOT_HELD)
        shared = self._is_shared(candidate)
        if not self._case.is_gate_enabled("DRAConsumableCapacity") or not (shared or amounts):
            return True
        for name, wanted in (self._compute_consumed(candidate, alternative) or {}).items():
            wanted += amounts.get(name, 0)
            wanted += sum(
                pick.consumed.get(name, 0)
                for pick in self._picks
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
        held = [other for other in self.get_view.consumers[candidate.pool] if other.path in self._held]
        fresh: list[ModelCandidate] = []
        for pick in self._picks:
            other = pick.candidate
            if other.pool != candidate.pool or not other.device.consumes_counters:
                continue
            free = pick.alternative.admin and self._case.departs(Departure.ADMIN_COUNTERS)
            if not free and not self._is_charged(other, fresh):
                fresh.append(other)
        if self._is_charged(candidate, fresh):
            return True
        left = dict(self.get_view.totals[candidate.pool])
        least = 0 if self._case.departs(Departure.NEGATIVE_DRAWS) else -MAX_INT64 * NANOS
        for other in (*held, *fresh, candidate):
            for drawn in other.device.consumes_counters:
                for name, counter in drawn.counters.items():
                    left[drawn.counter_set, name] -= max(to_nanos(counter.value), least)
        return min(left.values(), default=0) >= 0 and self._has_common_group(candidate, [*held, *fresh])

    def _is_charged(self, candidate: ModelCandidate, fresh: Sequence[ModelCandidate]) -> bool:
        """Whether a share of the device has drawn already, which is done once for all of them."""
        _, shares, _ = self._held.get(candidate.path, _NOT_HELD)
        return self._is_shared(candidate) and (shares or any(other is candidate for other in fresh))

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

    def _keeps_constraints(self, candidate: ModelCandidate, alternative: ModelAlternative) -> bool:
        claim = self._case.vector.claims[alternative.claim_index]
        for constraint in claim.spec.devices.constraints:
            if covers_request(constraint, alternative):
                before = [
                    pick.candidate
                    for pick in self._picks
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
    """Who holds what: device, whether as a whole, whether in shares, and the sum of the amounts."""
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
