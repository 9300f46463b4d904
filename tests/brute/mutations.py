"""Builds of the allocator that are broken on purpose, one plausible mistake each.

A mistake is a function that patches the allocator with `mock.patch`; the laws must notice it. Several are
mistakes that others made (see the regression tests), some were ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec

from dray.allocator import allocation_results, requests
from dray.allocator.checks import capacity, constraints, counters
from dray.allocator.inventory import device_inventory, device_profiles, pool_views, remainder
from dray.allocator.partial_solution import EVERY_CLAIM, PartialSolution
from dray.allocator.search import backtracking, candidates, frames
from dray.allocator.search.candidate_checks import CandidateChecks
from dray.api import tolerations

SABOTAGE: dict[str, Callable[[], Any]] = {}
"""Every mistake by name: a function that makes the patch to be entered."""


def mistake(make: Callable[[], Any]) -> Callable[[], Any]:
    SABOTAGE[make.__name__] = make
    return make


def broken(name: str) -> Any:
    """The allocator with one mistake in it, for a while."""
    return SABOTAGE[name]()


# --- what is not undone ---


def _forgetful(module: Any) -> Any:
    """A check whose facts never reach the undo log."""
    real = module.take

    class Unlogged:
        def __init__(self, solution: Any) -> None:
            self._solution = solution

        def __getattr__(self, table: str) -> Any:
            return getattr(self._solution, table)

        def assign(self, table: dict[Any, Any], key: Any, value: Any) -> None:
            table[key] = value

    return patch.object(module, "take", lambda solution, *rest: real(Unlogged(solution), *rest))


@mistake
def counters_are_not_given_back() -> Any:
    return _forgetful(counters)


@mistake
def shared_values_are_not_given_back() -> Any:
    return _forgetful(constraints)


@mistake
def capacity_is_not_given_back() -> Any:
    return _forgetful(capacity)


# --- who has what ---


@mistake
def devices_of_others_count_as_free() -> Any:
    return patch.object(
        CandidateChecks,
        "find_blocked",
        lambda checks, frame: checks.solution.used_devices.get(EVERY_CLAIM, 0),
    )


@mistake
def devices_of_this_attempt_count_as_free() -> Any:
    return patch.object(CandidateChecks, "find_blocked", lambda checks, frame: checks._shape.taken)


@mistake
def admin_access_forgets_its_own_claim() -> Any:
    real = requests.normalize_claims
    return patch(
        "tests.brute.laws.normalize_claims",
        lambda *given: msgspec.structs.replace(real(*given), has_admin_access=False),
    )


@mistake
def admin_access_minds_everybody() -> Any:
    def blocked(checks: Any, frame: Any) -> int:
        return int(checks._shape.taken | checks.solution.used_devices.get(EVERY_CLAIM, 0))

    return patch.object(CandidateChecks, "find_blocked", blocked)


@mistake
def all_leaves_out_what_is_in_use() -> Any:
    real = backtracking.BacktrackingSearch._open_frame

    def open_frame(search: Any, choice: Any, alternative_index: int, *given: Any) -> Any:
        alternative = choice.alternatives[alternative_index]
        if alternative.takes_all:
            found = candidates.get_candidate_set(search._shape, alternative)
            found.evaluate_all()
            found.matching &= ~search._shape.taken
        return real(search, choice, alternative_index, *given)

    return patch.object(backtracking.BacktrackingSearch, "_open_frame", open_frame)


@mistake
def the_next_device_of_a_request_starts_at_the_front() -> Any:
    real = frames.SearchFrame.build_next

    def build_next(frame: Any, mark: int) -> Any:
        found = real(frame, mark)
        found.cursor = 0
        return found

    return patch.object(frames.SearchFrame, "build_next", build_next)


@mistake
def flags_that_changed_are_not_noticed() -> Any:
    real = remainder.compute_remainder

    def compute(pool_view: Any, usage: Any) -> Any:
        names = dict(zip(pool_view.names, pool_view.profiles, strict=True))
        whole = {
            name: holder
            for name, holder in usage.whole.items()
            if name in names and not names[name].shareable
        }
        return real(pool_view, type(usage)(whole, usage.shares, usage.holders))

    return patch.object(device_inventory, "compute_remainder", compute)


# --- amounts and counters ---


@mistake
def amounts_are_rounded_down() -> Any:
    def round_by_policy(name: str, rule: Any, asked: int) -> int:
        limits = rule.valid_range
        if limits is None or limits.min is None or limits.step is None or asked <= limits.min.nanos:
            return real(name, rule, asked)  # type: ignore[return-value]
        least, step = limits.min.nanos, limits.step.nanos
        return int(least + (asked - least) // step * step)

    real = capacity._round_by_policy
    return patch.object(capacity, "_round_by_policy", round_by_policy)


@mistake
def amounts_of_this_attempt_do_not_count() -> Any:
    real = capacity.check

    return patch.object(capacity, "check", lambda solution, *rest: real(PartialSolution(), *rest))


@mistake
def amounts_of_others_do_not_count() -> Any:
    def check(checks: Any, alternative: Any, candidate: int) -> Any:
        checks._shape.capacity_left[candidate] = checks._shape.profiles[candidate].totals
        return real(checks, alternative, candidate)

    real = CandidateChecks.find_refusal
    return patch.object(CandidateChecks, "find_refusal", check)


@mistake
def every_share_draws_counters() -> Any:
    def charges(checks: Any, alternative: Any, candidate: int) -> bool:
        return not alternative.admin and bool(checks._shape.profiles[candidate].counters)

    return patch.object(CandidateChecks, "_charges_counters", charges)


@mistake
def admin_access_draws_counters() -> Any:
    real = CandidateChecks._charges_counters

    def charges(checks: Any, alternative: Any, candidate: int) -> bool:
        return real(checks, msgspec.structs.replace(alternative, admin=False), candidate)

    return patch.object(CandidateChecks, "_charges_counters", charges)


@mistake
def counters_of_old_shares_do_not_count() -> Any:
    real = remainder.compute_remainder

    def compute(pool_view: Any, usage: Any) -> Any:
        found = real(pool_view, usage)
        whole = real(pool_view, type(usage)(usage.whole, {}, {}))
        return remainder.PoolRemainder(
            found.taken, found.shared, found.amounts, whole.counters, (*found.key, whole.key)
        )

    return patch.object(device_inventory, "compute_remainder", compute)


# --- constraints and taints ---


@mistake
def match_compares_with_the_last_device_only() -> Any:
    return patch.object(
        constraints, "take", lambda solution, *fact: solution.assign(solution.constraint_values, *fact)
    )


@mistake
def types_of_values_do_not_matter() -> Any:
    real = device_profiles.DeviceProfile._look_up

    def look_up(profile: Any, attribute: str) -> Any:
        return frozenset(("", str(value)) for _type, value in real(profile, attribute))

    return patch.object(device_profiles.DeviceProfile, "_look_up", look_up)


@mistake
def tolerations_forget_the_effect() -> Any:
    real = tolerations.tolerates_taint

    def tolerates(toleration: Any, taint: Any) -> bool:
        return real(msgspec.structs.replace(toleration, effect=""), taint)

    return patch.object(tolerations, "tolerates_taint", tolerates)


# --- pools ---


@mistake
def unsound_pools_are_used() -> Any:
    return patch.object(pool_views, "_find_flaw", lambda *given: None)


@mistake
def priorities_are_not_looked_at() -> Any:
    real = pool_views._build_sort_key

    def sort_key(entries: Any) -> Any:
        driver, _priority, binding, name = real(entries)
        return (driver, 0, binding, name)

    return patch.object(pool_views, "_build_sort_key", sort_key)


@mistake
def answers_are_kept_for_too_many_wants() -> Any:
    def get_candidates(shape: Any, alternative: Any) -> Any:
        key = alternative.key[0]
        if key not in shape.candidate_sets:
            shape.candidate_sets[key] = candidates.CandidateSet(shape, alternative)
        return shape.candidate_sets[key]

    return patch.object(backtracking, "get_candidate_set", get_candidates)


@mistake
def too_many_nodes_look_alike() -> Any:
    real = remainder.compute_remainder

    def compute(pool_view: Any, usage: Any) -> Any:
        found = real(pool_view, usage)
        return remainder.PoolRemainder(found.taken, found.shared, found.amounts, found.counters, ())

    return patch.object(device_inventory, "compute_remainder", compute)


@mistake
def allocations_are_bound_where_a_like_node_is() -> Any:
    real = allocation_results._build_node_selector

    class Alike:
        def __init__(self, view: Any) -> None:
            self._view = view
            self.own_selector = view.own_selector

        def locate_device(self, candidate: int) -> Any:
            return self._view.shape, candidate

    def build(view: Any, picks: Any) -> Any:
        alike: Any = Alike(view)
        return real(alike, picks)

    return patch.object(allocation_results, "_build_node_selector", build)
