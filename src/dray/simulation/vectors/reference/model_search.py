"""The search: every request, every alternative, every combination of devices, in order.

Theory of operation: recursion over the requests of all claims. A partial solution is the list of its picks,
and every rule is asked of the whole list again. The first full list is the answer. There is no pruning but
that of Kubernetes itself (too many devices for one claim), so it takes the steps that Kubernetes takes, and
ends in `TooLarge` after `MOST` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dray.simulation.vectors.answers import Kind
from dray.simulation.vectors.reference.amounts import compute_consumption, nanos
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import LARGEST, NANOS, Abort, Case, TooLarge
from dray.simulation.vectors.reference.pools import Candidate, gather_pools
from dray.simulation.vectors.reference.requests import LIMIT, Choice, Want, read_choices
from dray.simulation.vectors.reference.rules import covers, keeps_constraint, tolerates

MOST = 400_000
"""Candidates to look at."""

_BLOCKING = ("NoSchedule", "NoExecute")
_NOBODY: tuple[bool, bool, dict[str, int]] = (False, False, {})


class _Found(Enum):
    """Whether the rest was solved; `OVER` when every alternative needs more devices than a claim can hold."""

    YES = "yes"
    NO = "no"
    OVER = "over"


@dataclass(frozen=True, eq=False, slots=True)
class Pick:
    """A device taken for a want; `taken` is set for a share."""

    want: Want
    candidate: Candidate
    taken: dict[str, int] | None


class PlainSearch:
    """One search."""

    def __init__(self, case: Case, most: int = MOST) -> None:
        self._case = case
        self._left = most
        self.view = gather_pools(case)
        self._choices: list[Choice] = []
        self._listed: dict[Want, list[Candidate]] = {}
        self._known: dict[tuple[Want, Candidate], bool | Abort] = {}
        self._amounts: dict[tuple[Want, Candidate], dict[str, int] | None] = {}
        self._picks: list[Pick] = []
        self._used: dict[Candidate, list[int]] = {}
        self._held = {result[0]: result[1:] for result in _held(case)}

    def run(self) -> tuple[Pick, ...] | None:
        """The first solution, if there is one; raises `Abort` or `TooLarge`."""
        for number, claim in enumerate(self._case.vector.claims):
            choices = read_choices(self._case, number, claim)
            for choice in choices:
                for want in choice.wants:
                    self._prepare(want)
            least = sum(min(self._count(want) for want in choice.wants) for choice in choices)
            if least < 0:
                raise Abort("cap out of range", kind=Kind.CRASH)
            if least > LIMIT:
                raise Abort(f"number of requested devices {least} exceeds")
            self._choices += choices
        return tuple(self._picks) if self._choose(0) is _Found.YES else None

    def is_faulty(self, candidate: Candidate) -> bool:
        """Whether some request cannot be judged on a device."""
        for number, claim in enumerate(self._case.vector.claims):
            for choice in read_choices(self._case, number, claim):
                for want in choice.wants:
                    try:
                        self._matches(candidate, want)
                    except Abort:
                        return True
        return False

    # --- before the search ---

    def _prepare(self, want: Want) -> None:
        """Kubernetes lists the devices of `All` beforehand, and aborts where it cannot."""
        if not want.every:
            return
        for pool in self.view.pools:
            if pool.flaw and not self._case.departs(Departure.ALL_POOL):
                raise Abort("asks for all devices", pool.flaw, about="/".join(pool.pool))
            if not self._case.departs(Departure.ALL_UNREACHED):
                for candidate in pool.candidates:
                    self._matches(candidate, want)

    def _count(self, want: Want) -> int:
        if not want.every:
            return want.said.count
        if self._case.departs(Departure.ALL_LIMIT):
            return 0
        lazy = self._case.departs(Departure.ALL_UNREACHED)
        return self._judgeable(want) if lazy else len(self._list(want))

    def _list(self, want: Want) -> list[Candidate]:
        if want not in self._listed:
            self._listed[want] = [
                candidate for candidate in self.view.candidates if self._matches(candidate, want)
            ]
        return self._listed[want]

    # --- requests, alternatives, devices ---

    def _choose(self, index: int) -> _Found:
        """Solve the rest, from a request on."""
        if index == len(self._choices):
            return _Found.YES
        choice = self._choices[index]
        before = sum(pick.want.claim == choice.claim for pick in self._picks)
        ends = set()
        for want in choice.wants:
            if want.every:
                found = self._take_all(index, want, before)
            elif before + want.said.count > LIMIT:
                found = _Found.OVER
            else:
                found = self._take(index, want, want.said.count, 0)
            if found is _Found.YES:
                return found
            ends.add(found)
        first = index == 0 or self._choices[index - 1].claim != choice.claim
        return _Found.OVER if ends == {_Found.OVER} and not first else _Found.NO

    def _take(self, index: int, want: Want, missing: int, start: int) -> _Found:
        if missing <= 0:
            return self._choose(index + 1)
        candidates = self.view.candidates
        for position in range(start, len(candidates)):
            self._step()
            candidate = candidates[position]
            if self._is_used(candidate, want) or not self._matches(candidate, want):
                continue
            if not self._is_free(candidate, want) or not self._constraints_hold(candidate, want):
                continue
            self._push(candidate, want)
            found = self._take(index, want, missing - 1, position + 1)
            if found is _Found.YES:
                return found
            self._pop()
            # Other devices do not make fewer of them.
            if found is _Found.OVER:
                return found
        return _Found.NO

    def _take_all(self, index: int, want: Want, before: int) -> _Found:
        if self.view.flaws:
            return _Found.NO
        try:
            candidates = self._list(want)
        except Abort:
            # More devices than a claim can hold refuse the alternative before any of them is judged.
            if before + self._judgeable(want) > LIMIT:
                return _Found.OVER
            raise
        if before + len(candidates) > LIMIT:
            return _Found.OVER
        mark = len(self._picks)
        if candidates and all(self._add(candidate, want) for candidate in candidates):
            found = self._choose(index + 1)
            if found is _Found.YES:
                return found
        else:
            found = _Found.NO
        while len(self._picks) > mark:
            self._pop()
        return found

    def _add(self, candidate: Candidate, want: Want) -> bool:
        """Take a device that must be had; Kubernetes aborts when a constraint is against it."""
        self._step()
        if self._is_used(candidate, want) or not self._is_free(candidate, want, at_last=True):
            return False
        if not self._constraints_hold(candidate, want):
            if not self._case.departs(Departure.ALL_CONSTRAINT):
                raise Abort("because a claim constraint would not be satisfied", about=str(candidate))
            return False
        if not self._has_capacity(candidate, want):
            return False
        self._push(candidate, want)
        return True

    def _push(self, candidate: Candidate, want: Want) -> None:
        shared = self._is_shared(candidate)
        self._picks.append(Pick(want, candidate, self._taken(candidate, want) if shared else None))
        if not shared:
            self._used.setdefault(candidate, []).append(want.claim)

    def _pop(self) -> None:
        pick = self._picks.pop()
        if pick.taken is None:
            claims = self._used[pick.candidate]
            claims.pop()
            if not claims:
                del self._used[pick.candidate]

    def _judgeable(self, want: Want) -> int:
        """How many devices match, as far as that can be said."""
        count = 0
        for candidate in self.view.candidates:
            try:
                count += self._matches(candidate, want)
            except Abort:
                continue
        return count

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooLarge

    # --- one device ---

    def _is_shared(self, candidate: Candidate) -> bool:
        return bool(candidate.device.allow_multiple_allocations) and self._case.enabled(
            "DRAConsumableCapacity"
        )

    def _matches(self, candidate: Candidate, want: Want) -> bool:
        """Whether the selectors are true and the device could ever give what is asked."""
        known = self._known.get((want, candidate))
        if known is None:
            try:
                known = self._judge(candidate, want)
            except Abort as abort:
                known = abort
            self._known[want, candidate] = known
        if isinstance(known, Abort):
            raise known
        return known

    def _judge(self, candidate: Candidate, want: Want) -> bool:
        if candidate.device.binding_conditions and not self._case.enabled("DRADeviceBindingConditions"):
            return False
        for expression in want.expressions:
            verdict = self._case.judge(expression, candidate.page.spec.driver, candidate.device)
            if isinstance(verdict, str):
                # A message about an expression that does not compile names no device.
                raise Abort("selector", about="" if "failed: " in verdict else str(candidate))
            if not verdict:
                return False
        return candidate.is_reachable and self._taken(candidate, want) is not None

    def _taken(self, candidate: Candidate, want: Want) -> dict[str, int] | None:
        """What an allocation takes of the device; None when it can never give that."""
        if not self._case.enabled("DRAConsumableCapacity"):
            return {}
        if (want, candidate) not in self._amounts:
            self._amounts[want, candidate] = compute_consumption(candidate.device, want.amounts, self._case)
        return self._amounts[want, candidate]

    # --- what is taken ---

    def _is_used(self, candidate: Candidate, want: Want) -> bool:
        """Whether somebody has the device; admin access only minds its own claim."""
        here = self._used.get(candidate, ())
        if want.admin:
            return want.claim in here
        whole, shares, _ = self._held.get(candidate.place, _NOBODY)
        if whole or here:
            return True
        return shares and not self._is_shared(candidate) and self._case.departs(Departure.HELD_SHARES)

    def _is_free(self, candidate: Candidate, want: Want, at_last: bool = False) -> bool:
        """Whether nothing but constraints is against it; for `All`, room is looked for at last."""
        if not at_last and not self._has_capacity(candidate, want):
            return False
        departs = self._case.departs
        if not departs(Departure.NODE_OPERATIONS) and not self._may_skip(candidate):
            return False
        if departs(Departure.SELECTOR_TERMS) and has_several_terms(candidate):
            return False
        if candidate.device.consumes_counters and not self._counters_allow(candidate, want):
            return False
        return not self._case.enabled("DRADeviceTaints") or all(
            tolerates(want.said.tolerations, taint)
            for taint in candidate.device.taints
            if taint.effect in _BLOCKING
        )

    def _may_skip(self, candidate: Candidate) -> bool:
        """Whether the node knows what the driver wants to leave out there."""
        asked = candidate.skips_operations and self._case.feature("OptionalNodeOperations")
        return not asked or self._case.vector.extras.skips_declared

    def _has_capacity(self, candidate: Candidate, want: Want) -> bool:
        """Whether its capacities have enough left."""
        _, _, amounts = self._held.get(candidate.place, _NOBODY)
        shared = self._is_shared(candidate)
        if not self._case.enabled("DRAConsumableCapacity") or not (shared or amounts):
            return True
        for name, wanted in (self._taken(candidate, want) or {}).items():
            wanted += amounts.get(name, 0)
            wanted += sum(
                pick.taken.get(name, 0) for pick in self._picks if pick.candidate is candidate and pick.taken
            )
            if wanted > nanos(candidate.device.capacity[name].value):
                return False
        return True

    def _counters_allow(self, candidate: Candidate, want: Want) -> bool:
        """Whether the counters of its pool have enough left, and its groups go with those of the others."""
        if not self._case.enabled("DRAPartitionableDevices"):
            return False
        if want.admin and self._case.departs(Departure.ADMIN_COUNTERS):
            return True
        held = [other for other in self.view.consumers[candidate.pool] if other.place in self._held]
        fresh: list[Candidate] = []
        for pick in self._picks:
            other = pick.candidate
            if other.pool != candidate.pool or not other.device.consumes_counters:
                continue
            free = pick.want.admin and self._case.departs(Departure.ADMIN_COUNTERS)
            if not free and not self._is_charged(other, fresh):
                fresh.append(other)
        if self._is_charged(candidate, fresh):
            return True
        left = dict(self.view.totals[candidate.pool])
        least = 0 if self._case.departs(Departure.NEGATIVE_DRAWS) else -LARGEST * NANOS
        for other in (*held, *fresh, candidate):
            for drawn in other.device.consumes_counters:
                for name, counter in drawn.counters.items():
                    left[drawn.counter_set, name] -= max(nanos(counter.value), least)
        return min(left.values(), default=0) >= 0 and self._groups_agree(candidate, [*held, *fresh])

    def _is_charged(self, candidate: Candidate, fresh: Sequence[Candidate]) -> bool:
        """Whether a share of the device has drawn already, which is done once for all of them."""
        _, shares, _ = self._held.get(candidate.place, _NOBODY)
        return self._is_shared(candidate) and (shares or any(other is candidate for other in fresh))

    def _groups_agree(self, candidate: Candidate, others: Sequence[Candidate]) -> bool:
        """Whether one compatibility group is common to all who draw from a counter set."""
        departs = self._case.departs(Departure.COMPATIBILITY_GROUPS)
        if departs or not self._case.feature("CompatibilityGroups"):
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

    def _constraints_hold(self, candidate: Candidate, want: Want) -> bool:
        claim = self._case.vector.claims[want.claim]
        for constraint in claim.spec.devices.constraints:
            if covers(constraint, want):
                before = [
                    pick.candidate
                    for pick in self._picks
                    if pick.want.claim == want.claim and covers(constraint, pick.want)
                ]
                if not keeps_constraint(constraint, [*before, candidate], self._case):
                    return False
        return True


def has_several_terms(candidate: Candidate) -> bool:
    """Whether its node selector has several terms, which no allocation can express."""
    holder = candidate.holder
    if holder.node_name or candidate.device.binds_to_node or holder.node_selector is None:
        return False
    return len(holder.node_selector.node_selector_terms) > 1


def _held(case: Case) -> list[tuple[tuple[str, str, str], bool, bool, dict[str, int]]]:
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
