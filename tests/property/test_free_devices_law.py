"""A device that is listed as free can be allocated by a claim that asks for exactly it; no other one can."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.allocate import SuccessfulAllocation, allocate
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    CELDeviceSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceTaint,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.simulation.bundle import Bundle
from dray.simulation.free_devices import AvailabilityState, find_free_devices
from dray.values.quantity import Quantity
from tests.effort import effort

NODE = Node(metadata=ObjectMeta(name="n"))
CLASS = DeviceClass(metadata=ObjectMeta(name="any"))
DRIVER = "x"
MOST = 6


def judge(expression: str, driver: str, device: Device) -> bool | str:
    """Selects the one device whose attribute `id` is the expression."""
    return device.attributes["id"].string_value == expression


def amount(number: int) -> Quantity:
    return Quantity.parse(number)


policies = st.one_of(
    st.none(),
    st.builds(
        lambda least, step: CapacityRequestPolicy(
            default=amount(least),
            valid_range=CapacityRequestPolicyRange(min=amount(least), step=amount(step) if step else None),
        ),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    st.builds(
        lambda values: CapacityRequestPolicy(
            default=amount(min(values)), valid_values=tuple(amount(value) for value in sorted(values))
        ),
        st.sets(st.integers(1, MOST), min_size=1, max_size=3),
    ),
)


@st.composite
def devices(draw: st.DrawFn, number: int, counters: bool) -> Device:
    shareable = draw(st.booleans())
    drawn = draw(st.integers(0, 3)) if counters else 0
    consumed = DeviceCounterConsumption(counter_set="set", counters={"c": Counter(value=amount(drawn))})
    taint = DeviceTaint(key="down", effect=draw(st.sampled_from(["NoSchedule", "None"])))
    capacity = (
        {
            name: DeviceCapacity(value=amount(draw(st.integers(0, MOST))), request_policy=draw(policies))
            for name in ("a", "b")[: draw(st.integers(0, 2))]
        }
        if shareable or draw(st.booleans())
        else {}
    )
    return Device(
        name=f"d{number}",
        attributes={"id": DeviceAttribute(string_value=f"d{number}")},
        capacity=capacity,
        allow_multiple_allocations=shareable or None,
        consumes_counters=(consumed,) if drawn else (),
        taints=(taint,) if draw(st.integers(0, 5)) == 0 else (),
    )


@st.composite
def pools(draw: st.DrawFn) -> tuple[list[ResourceSlice], list[ResourceClaim]]:
    counters = draw(st.booleans())
    made = tuple(draw(devices(i, counters)) for i in range(draw(st.integers(1, 5))))
    parts: list[dict[str, Any]] = [{"devices": made}]
    if counters:
        held = CounterSet(name="set", counters={"c": Counter(value=amount(draw(st.integers(0, 6))))})
        parts.append({"shared_counters": (held,)})
    slices = [
        ResourceSlice(
            metadata=ObjectMeta(name=f"s{i}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                node_name="n",
                pool=ResourcePool(name="p", generation=1, resource_slice_count=len(parts)),
                **part,
            ),
        )
        for i, part in enumerate(parts)
    ]
    names = draw(st.lists(st.sampled_from([device.name for device in made]), max_size=4))
    return slices, [draw(claims(i, next(d for d in made if d.name == name))) for i, name in enumerate(names)]


@st.composite
def claims(draw: st.DrawFn, number: int, device: Device) -> ResourceClaim:
    share = bool(device.allow_multiple_allocations) and draw(st.integers(0, 9)) > 0
    result = DeviceRequestAllocationResult(
        request="r",
        driver=DRIVER,
        pool="p",
        device=device.name,
        share_id=str(number) if share else None,
        consumed_capacity={name: amount(draw(st.integers(0, 4))) for name in device.capacity}
        if share
        else {},
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    return ResourceClaim(
        metadata=ObjectMeta(name=f"c{number}", namespace="ml"),
        status=ResourceClaimStatus(allocation=allocation),
    )


def asks(device: Device, amounts: dict[str, int] | None) -> ResourceClaim:
    """A claim for one device, and for some of its capacities."""
    wanted = CapacityRequirements(requests={name: amount(value) for name, value in (amounts or {}).items()})
    exactly = ExactDeviceRequest(
        device_class_name="any",
        allocation_mode="ExactCount",
        count=1,
        selectors=(DeviceSelector(cel=CELDeviceSelector(expression=device.name)),),
        capacity=wanted if amounts else None,
    )
    requests = (DeviceRequest(name="r", exactly=exactly),)
    return ResourceClaim(
        metadata=ObjectMeta(name="new", namespace="ml"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def can_be_allocated(inventory: DeviceInventory, device: Device) -> bool:
    """Whether any amounts that could be asked for lead to an allocation."""
    tried: list[dict[str, int] | None] = [None]
    tried += [
        {name: value for name, value in zip(device.capacity, values, strict=True) if value}
        for values in product(range(MOST + 1), repeat=len(device.capacity))
    ]
    return any(
        isinstance(
            allocate(inventory, [asks(device, amounts)], NODE, new_share_id=lambda: "id"),
            SuccessfulAllocation,
        )
        for amounts in tried
    )


@effort(3)
@given(pools())
def test_free_is_what_can_be_allocated(drawn: tuple[list[ResourceSlice], list[ResourceClaim]]) -> None:
    slices, held = drawn
    inventory = DeviceInventory(slices, [CLASS], DeviceUsage.from_claims(held), judge)
    found = find_free_devices(Bundle(nodes=(NODE,), slices=tuple(slices), claims=tuple(held)), inventory)
    (pool,) = found.pools
    listed = {device.name: device.state.can_be_had for device in pool.devices}
    expected = {
        device.name: can_be_allocated(inventory, device) for each in slices for device in each.spec.devices
    }
    assert listed == expected
    allocations = [claim.status.allocation for claim in held]
    holders = {each.devices.results[0].device for each in allocations if each is not None}
    for device in pool.devices:
        assert bool(device.holders) == (device.name in holders)
        if device.state is AvailabilityState.USED_UP:
            assert device.holders or device.blockers
