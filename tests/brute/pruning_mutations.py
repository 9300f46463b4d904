"""Builds of the allocator whose pruning is broken on purpose, one plausible mistake each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from dray.allocator.search.pruning import (
    bounds,
    completion,
    components,
    model,
    open_requests,
    prices,
    symmetry,
)
from tests.brute.mutations import mistake


def _blank(owner: Any, method: str, field: str, blank: Callable[[Any], Any]) -> Any:
    """A method that sees a blank field of its model."""
    real = getattr(owner, method)

    def run(self: Any, *given: Any) -> Any:
        kept = getattr(self._model, field)
        setattr(self._model, field, blank(kept))
        try:
            return real(self, *given)
        finally:
            setattr(self._model, field, kept)

    return patch.object(owner, method, run)


@mistake
def twins_may_differ_in_attributes() -> Any:
    return _blank(symmetry.DeviceSymmetry, "_find_twins", "values", lambda values: [])


@mistake
def twins_may_differ_in_counters() -> Any:
    return _blank(symmetry.DeviceSymmetry, "_find_twins", "draws", lambda draws: [()] * len(draws))


@mistake
def twins_may_suit_other_wants() -> Any:
    def find_equivalents(self: Any, state: Any, masks: Any, device: int) -> int:
        return int(real(self, state, [], device))

    real = symmetry.DeviceSymmetry.find_equivalents
    return _all_of(
        patch.object(symmetry.DeviceSymmetry, "_collect_memberships", lambda self, device: 0),
        patch.object(symmetry.DeviceSymmetry, "find_equivalents", find_equivalents),
    )


@mistake
def components_are_alike_whatever_is_left_of_them() -> Any:
    return patch.object(components.CounterComponent, "capture_state", lambda self, state, masks: None)


@mistake
def components_may_differ_in_what_they_draw() -> Any:
    return _blank(symmetry.DeviceSymmetry, "_build_signature", "draws", lambda draws: [()] * len(draws))


@mistake
def as_many_as_there_are_is_one_too_many() -> Any:
    def has_assignment(wanted: Any) -> bool:
        union = 0
        for mask in wanted:
            union |= mask
        return bool(sum(wanted.values()) < union.bit_count())

    return patch.object(bounds, "has_assignment", has_assignment)


@mistake
def shared_devices_serve_one_want_each() -> Any:
    return _blank(bounds.FeasibilityBounds, "_check_exclusive", "shareable", lambda mask: 0)


@mistake
def shares_draw_counters_each_time() -> Any:
    return _blank(bounds.FeasibilityBounds, "_check_counters", "shareable", lambda mask: 0)


@mistake
def a_value_needs_a_device_to_spare() -> Any:
    real = bounds.FeasibilityBounds._find_common_values

    def common(self: Any, index: int, pin: int, covered: Any) -> int:
        viable = real(self, index, pin, covered)
        return viable & (viable - 1) or viable if len(covered) == 1 else viable & (viable - 1)

    return patch.object(bounds.FeasibilityBounds, "_find_common_values", common)


@mistake
def shares_leave_a_rest_that_nobody_can_use() -> Any:
    real = bounds._fill_capacity
    return patch.object(
        bounds, "_fill_capacity", lambda rest, unit, sizes: max(real(rest, unit, sizes) - unit, 0)
    )


@mistake
def values_that_must_differ_are_counted_once_too_often() -> Any:
    real = bounds.FeasibilityBounds._check_distinct

    def distinct(self: Any, index: int, covered: Any) -> Any:
        return real(self, index, [*covered, covered[-1]])

    return patch.object(bounds.FeasibilityBounds, "_check_distinct", distinct)


@mistake
def failed_states_are_the_same_whatever_was_used_up() -> Any:
    real = completion.CompletionSearch._build_key

    def key(self: Any, state: Any, opens: Any) -> Any:
        masks, _rest, *others = real(self, state, opens)
        return (masks, *others)

    return patch.object(completion.CompletionSearch, "_build_key", key)


@mistake
def failed_states_are_the_same_whatever_was_taken() -> Any:
    real = completion.CompletionSearch._build_key

    def key(self: Any, state: Any, opens: Any) -> Any:
        masks, *others = real(self, state, opens)
        return (len(masks), *others)

    return patch.object(completion.CompletionSearch, "_build_key", key)


@mistake
def only_the_first_common_value_is_tried() -> Any:
    real = completion.CompletionSearch._branch_on_value

    def branch(self: Any, *given: Any) -> bool:
        before = len(self._stack)
        found = real(self, *given)
        if found:
            del self._stack[before:-1]
        return found

    return patch.object(completion.CompletionSearch, "_branch_on_value", branch)


@mistake
def requests_behind_a_device_that_cannot_be_judged_count() -> Any:
    real = model.PruningModel.__init__

    def start(self: Any, *given: Any) -> None:
        real(self, *given)
        self.faulty = [False] * len(self.faulty)

    return patch.object(model.PruningModel, "__init__", start)


@mistake
def what_asks_for_fewer_devices_is_dropped() -> Any:
    def undominated(alternatives: Any) -> Any:
        return tuple(demand for demand in alternatives if demand.possible)[:1]

    return patch.object(model, "drop_dominated", undominated)


def _all_of(*patches: Any) -> Any:
    """Several patches that make one mistake."""

    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as entered:
            for one in patches:
                entered.enter_context(one)
            yield

    return patched()


@mistake
def fewer_devices_of_a_component_fit_than_do() -> Any:
    real = components._count_max_fitting
    return patch.object(components, "_count_max_fitting", lambda *given: max(real(*given) - 1, 0))


@mistake
def merged_requests_need_a_device_more() -> Any:
    real = open_requests.merge_requests

    def merge(given: Any, shareable: int) -> Any:
        found = real(given, shareable)
        for one in found:
            if len(one.parts) > 1:
                demand, count, mask = one.alternatives[0]
                one.alternatives, one.count = [(demand, count + 1, mask)], count + 1
        return found

    return patch.object(completion, "merge_requests", merge)


@mistake
def devices_cost_less_than_they_are_paid_for() -> Any:
    real = prices.DevicePrices._compare

    def compare(self: Any, opens: Any) -> Any:
        surplus, used, there = real(self, opens)
        return surplus + prices.PRICE_UNIT, used, there

    return patch.object(prices.DevicePrices, "_compare", compare)


@mistake
def shared_devices_are_not_free() -> Any:
    real = prices.DevicePrices.__init__

    def start(self: Any, classes: Any) -> None:
        real(self, classes)
        self._priced = -1

    return patch.object(prices.DevicePrices, "__init__", start)
