"""Valid allocations made invalid, one forgery each, to check that the verifier notices.

A forgery changes the allocation (here) or the world around it (see `spoiling`) and names the rules of which
one must be found broken. It answers None where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as changed

from dray.allocator.verify import AllocationRule
from dray.api.resource import DeviceAllocationConfiguration
from dray.values.node_selectors import build_node_name_selector
from tests.brute import builders as make
from tests.brute.config_builders import opaque
from tests.brute.problem import Problem

Results = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A problem and its allocations."""

    problem: Problem
    results: Results

    def parts(self) -> list[tuple[int, int, Any]]:
        return [
            (c, i, part) for c, one in enumerate(self.results) for i, part in enumerate(one.devices.results)
        ]

    def with_parts(self, c: int, parts: list[Any]) -> Case:
        """With other results in one claim."""
        one = self.results[c]
        forged = changed(one, devices=changed(one.devices, results=tuple(parts)))
        return replace(self, results=(*self.results[:c], forged, *self.results[c + 1 :]))

    def with_part(self, c: int, i: int, **fields: Any) -> Case:
        """With another result at one place."""
        parts = list(self.results[c].devices.results)
        parts[i] = changed(parts[i], **fields)
        return self.with_parts(c, parts)

    def with_claim(self, c: int, **fields: Any) -> Case:
        """With other fields around the devices of one claim."""
        return replace(
            self, results=(*self.results[:c], changed(self.results[c], **fields), *self.results[c + 1 :])
        )

    def published(self, part: Any) -> tuple[int, int] | None:
        """The slice and position of a part's device, in the newest generation."""
        found = [
            (item.spec.pool.generation, s, d)
            for s, item in enumerate(self.problem.slices)
            for d, device in enumerate(item.spec.devices)
            if (item.spec.driver, item.spec.pool.name, device.name) == (part.driver, part.pool, part.device)
        ]
        return max(found)[1:] if len(found) == 1 else None

    def with_device(self, part: Any, **fields: Any) -> Case | None:
        """With another device published in its place."""
        where = self.published(part)
        if where is None:
            return None
        s, d = where
        item = self.problem.slices[s]
        devices = list(item.spec.devices)
        devices[d] = changed(devices[d], **fields)
        return self.with_slice(s, devices=tuple(devices))

    def device(self, part: Any) -> Any:
        where = self.published(part)
        return self.problem.slices[where[0]].spec.devices[where[1]] if where is not None else None

    def with_slice(self, s: int, **fields: Any) -> Case:
        slices = list(self.problem.slices)
        slices[s] = changed(slices[s], spec=changed(slices[s].spec, **fields))
        return replace(self, problem=replace(self.problem, slices=tuple(slices)))

    def asked(self, c: int, part: Any) -> Any:
        """What the request of a part asks."""
        request, sub = request_of(self, c, part), part.request.partition("/")[2]
        return next(s for s in request.first_available if s.name == sub) if sub else request.exactly


Forgery = Callable[[Case], Case | None]


class Forgeries(dict[str, tuple[Forgery, frozenset[AllocationRule]]]):
    """Forgeries by name, with the rules one of which they must break."""

    def breaks(self, *rules: AllocationRule) -> Callable[[Forgery], Forgery]:
        def note(forgery: Forgery) -> Forgery:
            self[forgery.__name__] = (forgery, frozenset(rules))
            return forgery

        return note


FORGERIES = Forgeries()
breaks = FORGERIES.breaks


def first(case: Case, suits: Callable[[Any], bool] = lambda part: True) -> tuple[int, int, Any] | None:
    return next((found for found in case.parts() if suits(found[2])), None)


def request_of(case: Case, c: int, part: Any) -> Any:
    """The request a part is for."""
    name = part.request.partition("/")[0]
    return next(item for item in case.problem.claims[c].spec.devices.requests if item.name == name)


# --- forged results ---


@breaks(AllocationRule.CLAIMS)
def a_claim_has_no_allocation(case: Case) -> Case | None:
    return replace(case, results=case.results[:-1])


@breaks(AllocationRule.COUNT, AllocationRule.ALL)
def a_device_is_left_out(case: Case) -> Case | None:
    for c, i, part in case.parts():
        # Where an alternative asks for none, none is an answer, too.
        ways = [way for way in request_of(case, c, part).first_available if way.count == 0]
        if all(way.allocation_mode == "All" for way in ways):
            parts = list(case.results[c].devices.results)
            return case.with_parts(c, parts[:i] + parts[i + 1 :])
    return None


@breaks(AllocationRule.TWICE)
def a_device_is_there_twice(case: Case) -> Case | None:
    found = first(case)
    return found and case.with_parts(found[0], [*case.results[found[0]].devices.results, found[2]])


@breaks(AllocationRule.REQUEST)
def a_request_is_made_up(case: Case) -> Case | None:
    found = first(case)
    return found and case.with_part(found[0], found[1], request="nobody")


@breaks(AllocationRule.REQUEST)
def an_alternative_is_called_by_itsrequest_of(case: Case) -> Case | None:
    found = first(case, lambda part: "/" in part.request)
    return found and case.with_part(found[0], found[1], request=found[2].request.partition("/")[0])


@breaks(AllocationRule.ALTERNATIVE)
def alternatives_are_mixed(case: Case) -> Case | None:
    for c, one in enumerate(case.results):
        names = [part.request for part in one.devices.results]
        for i, name in enumerate(names):
            main, _, sub = name.partition("/")
            ways = request_of(case, c, one.devices.results[i]).first_available
            others = [way.name for way in ways if way.name != sub]
            if others and names.count(name) > 1:
                return case.with_part(c, i, request=f"{main}/{others[0]}")
    return None


@breaks(AllocationRule.DEVICE)
def a_device_is_made_up(case: Case) -> Case | None:
    found = first(case)
    return found and case.with_part(found[0], found[1], device="nothing")


@breaks(AllocationRule.DEVICE)
def a_pool_of_another_driver_is_named(case: Case) -> Case | None:
    found = first(case)
    return found and case.with_part(found[0], found[1], driver="other.example")


@breaks(AllocationRule.ADMIN)
def admin_access_is_made_up(case: Case) -> Case | None:
    found = first(case, lambda part: not part.admin_access)
    return found and case.with_part(found[0], found[1], admin_access=True)


@breaks(AllocationRule.ADMIN)
def admin_access_is_hidden(case: Case) -> Case | None:
    found = first(case, lambda part: part.admin_access)
    return found and case.with_part(found[0], found[1], admin_access=None)


@breaks(AllocationRule.SHARE_ID)
def a_share_has_no_id(case: Case) -> Case | None:
    found = first(case, lambda part: part.share_id is not None)
    return found and case.with_part(found[0], found[1], share_id=None)


@breaks(AllocationRule.SHARE_ID)
def a_whole_device_has_a_share_id(case: Case) -> Case | None:
    found = first(case, lambda part: part.share_id is None)
    return found and case.with_part(found[0], found[1], share_id="00000000-0000-4000-8000-000000009999")


@breaks(AllocationRule.SHARE_ID)
def two_shares_have_one_id(case: Case) -> Case | None:
    shares = [found for found in case.parts() if found[2].share_id is not None]
    if len(shares) < 2:
        return None
    return case.with_part(shares[0][0], shares[0][1], share_id=shares[1][2].share_id)


@breaks(AllocationRule.CONSUMED)
def a_share_consumes_less(case: Case) -> Case | None:
    found = first(case, lambda part: any(amount.nanos for amount in part.consumed_capacity.values()))
    if found is None:
        return None
    less = {name: make.quantity(0) for name in found[2].consumed_capacity}
    return case.with_part(found[0], found[1], consumed_capacity=less)


@breaks(AllocationRule.CONSUMED)
def a_capacity_is_not_written_down(case: Case) -> Case | None:
    found = first(case, lambda part: bool(part.consumed_capacity))
    if found is None:
        return None
    kept = dict(list(found[2].consumed_capacity.items())[1:])
    return case.with_part(found[0], found[1], consumed_capacity=kept)


@breaks(AllocationRule.CONSUMED)
def a_whole_device_consumes_something(case: Case) -> Case | None:
    found = first(case, lambda part: part.share_id is None)
    return found and case.with_part(found[0], found[1], consumed_capacity={"mem": make.quantity(1)})


@breaks(AllocationRule.COPIES)
def tolerations_are_lost(case: Case) -> Case | None:
    found = first(case, lambda part: bool(part.tolerations))
    return found and case.with_part(found[0], found[1], tolerations=())


@breaks(AllocationRule.COPIES)
def binding_conditions_are_lost(case: Case) -> Case | None:
    found = first(case, lambda part: bool(part.binding_conditions))
    return found and case.with_part(found[0], found[1], binding_conditions=())


@breaks(AllocationRule.NODE_SELECTOR)
def an_allocation_is_bound_elsewhere(case: Case) -> Case | None:
    return case.with_claim(0, node_selector=build_node_name_selector("elsewhere")) if case.results else None


@breaks(AllocationRule.NODE_SELECTOR)
def an_allocation_is_bound_to_nothing(case: Case) -> Case | None:
    bound = [c for c, one in enumerate(case.results) if one.node_selector is not None]
    return case.with_claim(bound[0], node_selector=None) if bound else None


@breaks(AllocationRule.CONFIG)
def configuration_is_lost(case: Case) -> Case | None:
    had = [c for c, one in enumerate(case.results) if one.devices.config]
    return case.with_claim(had[0], devices=changed(case.results[had[0]].devices, config=())) if had else None


@breaks(AllocationRule.CONFIG)
def configuration_is_for_anotherrequest_of(case: Case) -> Case | None:
    for c, one in enumerate(case.results):
        if one.devices.config:
            first = changed(one.devices.config[0], requests=("another",))
            forged = changed(one.devices, config=(first, *one.devices.config[1:]))
            return case.with_claim(c, devices=forged)
    return None


@breaks(AllocationRule.CONFIG)
def configuration_is_made_up(case: Case) -> Case | None:
    made_up = DeviceAllocationConfiguration(source="FromClaim", opaque=opaque("x"))
    devices = case.results[0].devices
    return case.with_claim(0, devices=changed(devices, config=(*devices.config, made_up)))
