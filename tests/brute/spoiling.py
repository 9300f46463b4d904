"""Forgeries that leave an allocation as it is and change the world around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from dray.allocator.verify import AllocationRule
from dray.api.resource import DeviceTaint
from tests.brute import builders as make
from tests.brute.forgery import Case, Forgeries, first

SPOILINGS = Forgeries()
breaks = SPOILINGS.breaks


@breaks(AllocationRule.IN_USE)
def somebody_has_the_device(case: Case) -> Case | None:
    found = first(case, lambda part: not part.admin_access)
    if found is None:
        return None
    part = found[2]
    holder = make.holding(make.result(part.device, part.pool, part.driver), name="late")
    return replace(case, problem=replace(case.problem, held=(*case.problem.held, holder)))


@breaks(AllocationRule.IN_USE)
def somebody_has_a_share_of_a_device_that_is_whole_now(case: Case) -> Case | None:
    found = first(case, lambda part: not part.admin_access and part.share_id is None)
    if found is None:
        return None
    part = found[2]
    share = make.result(part.device, part.pool, part.driver, share="late", consumed={"mem": 1})
    return replace(
        case, problem=replace(case.problem, held=(*case.problem.held, make.holding(share, name="late")))
    )


@breaks(AllocationRule.IN_USE)
def two_claims_have_one_device(case: Case) -> Case | None:
    whole = [found for found in case.parts() if found[2].share_id is None and not found[2].admin_access]
    for c, i, part in whole:
        for _, _, other in whole:
            if (part.driver, part.pool, part.device) != (other.driver, other.pool, other.device):
                return case.with_part(c, i, driver=other.driver, pool=other.pool, device=other.device)
    return None


@breaks(AllocationRule.ADMIN)
def an_admin_looks_at_one_device_twice(case: Case) -> Case | None:
    admins = [found for found in case.parts() if found[2].admin_access and found[2].share_id is None]
    for c, i, _part in admins:
        for c2, i2, other in admins:
            if c == c2 and i != i2:
                return case.with_part(c, i, driver=other.driver, pool=other.pool, device=other.device)
    return None


@breaks(AllocationRule.CAPACITY)
def a_device_has_less_than_it_had(case: Case) -> Case | None:
    """The device shrinks, and old shares take what is left of it."""
    found = first(case, lambda part: any(amount.nanos for amount in part.consumed_capacity.values()))
    if found is None:
        return None
    part, device = found[2], case.device(found[2])
    if device is None:
        return None
    every = {name: str(capacity.value) for name, capacity in device.capacity.items()}
    share = make.result(part.device, part.pool, part.driver, share="late", consumed=every)
    return replace(
        case, problem=replace(case.problem, held=(*case.problem.held, make.holding(share, name="late")))
    )


@breaks(AllocationRule.COUNTERS)
def the_budget_is_smaller(case: Case) -> Case | None:
    held = {
        (r.driver, r.pool, r.device)
        for claim in case.problem.held
        if claim.status.allocation is not None
        for r in claim.status.allocation.devices.results
    }
    for _c, _i, part in case.parts():
        device = case.device(part)
        if part.admin_access or device is None or (part.driver, part.pool, part.device) in held:
            continue
        if not any(n.value.nanos for drawn in device.consumes_counters for n in drawn.counters.values()):
            continue
        for s, item in enumerate(case.problem.slices):
            if (item.spec.driver, item.spec.pool.name) == (
                part.driver,
                part.pool,
            ) and item.spec.shared_counters:
                return case.with_slice(s, shared_counters=(make.budget("set", slots=0, lanes=0),))
    return None


@breaks(AllocationRule.TAINTS)
def a_device_is_tainted(case: Case) -> Case | None:
    found = first(case, lambda part: all(t.key or t.effect == "NoExecute" for t in part.tolerations))
    taint = DeviceTaint(key="new", value="yes", effect="NoSchedule")
    return found and case.with_device(found[2], taints=(taint,))


@breaks(AllocationRule.CONSTRAINT)
def a_device_loses_its_attributes(case: Case) -> Case | None:
    for c, _i, part in case.parts():
        constraints = case.problem.claims[c].spec.devices.constraints
        if any(not said.requests for said in constraints):
            return case.with_device(part, attributes={})
    return None


@breaks(AllocationRule.SELECTOR)
def a_selector_is_no_longer_true(case: Case) -> Case | None:
    classes = tuple(
        make.device_class(item.metadata.name, "never", config=item.spec.config)
        for item in case.problem.classes
    )
    return replace(case, problem=replace(case.problem, classes=classes)) if case.parts() else None


@breaks(AllocationRule.SELECTOR)
def a_device_lost_what_is_asked(case: Case) -> Case | None:
    for c, _i, part in case.parts():
        asked = case.asked(c, part).capacity
        if asked is not None and asked.requests:
            return case.with_device(part, capacity={})
    return None


@breaks(AllocationRule.CLASS)
def a_class_is_gone(case: Case) -> Case | None:
    return replace(case, problem=replace(case.problem, classes=())) if case.parts() else None


@breaks(AllocationRule.ALL)
def there_is_one_more_of_all(case: Case) -> Case | None:
    """A device like one that was taken appears beside it."""
    for c, _i, part in case.parts():
        where = case.published(part)
        if case.asked(c, part).allocation_mode == "All" and where is not None:
            item = case.problem.slices[where[0]]
            like = changed(item.spec.devices[where[1]], name="another")
            return case.with_slice(where[0], devices=(*item.spec.devices, like))
    return None


def _pool_of(case: Case, part: Any) -> list[int]:
    return [
        s
        for s, item in enumerate(case.problem.slices)
        if (item.spec.driver, item.spec.pool.name) == (part.driver, part.pool)
    ]


@breaks(AllocationRule.DEVICE)
def the_pool_became_incomplete(case: Case) -> Case | None:
    found = first(case)
    if found is None:
        return None
    for s in _pool_of(case, found[2]):
        pool = case.problem.slices[s].spec.pool
        case = case.with_slice(s, pool=changed(pool, resource_slice_count=pool.resource_slice_count + 5))
    return case


@breaks(AllocationRule.DEVICE)
def the_pool_moved_to_another_node(case: Case) -> Case | None:
    found = first(case)
    if found is None:
        return None
    for s in _pool_of(case, found[2]):
        case = case.with_slice(
            s, node_name="elsewhere", all_nodes=None, node_selector=None, per_device_node_selection=None
        )
    return case


@breaks(AllocationRule.DEVICE)
def a_device_is_published_twice(case: Case) -> Case | None:
    found = first(case)
    where = case.published(found[2]) if found is not None else None
    if where is None:
        return None
    devices = case.problem.slices[where[0]].spec.devices
    return case.with_slice(where[0], devices=(*devices, devices[where[1]]))


@breaks(AllocationRule.NODE_SELECTOR)
def a_device_is_bound_in_two_ways(case: Case) -> Case | None:
    found = first(case)
    where = case.published(found[2]) if found is not None else None
    if where is None or case.problem.slices[where[0]].spec.per_device_node_selection:
        return None
    if case.problem.slices[where[0]].spec.devices[where[1]].binds_to_node:
        return None
    terms = make.labelled({"zone": "z1"}, {"zone": "z2"})
    return case.with_slice(where[0], node_name=None, all_nodes=None, node_selector=terms)
