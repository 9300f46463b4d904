"""A device inventory that is updated step by step answers like one built from scratch."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.values.quantity import Quantity
from tests.effort import effort

NODES = [Node(metadata=ObjectMeta(name=name)) for name in ("a", "b", "c")]


def judge(expression: str, driver: str, device: Device) -> bool | str:
    return True


@st.composite
def slices(draw: st.DrawFn) -> list[ResourceSlice]:
    found = []
    for index in range(draw(st.integers(0, 5))):
        node = draw(st.sampled_from(["a", "b", "c", None]))
        pool = ResourcePool(
            name=draw(st.sampled_from(["p", "q"])), generation=draw(st.integers(1, 2)), resource_slice_count=1
        )
        devices = tuple(Device(name=f"d{index}-{i}") for i in range(draw(st.integers(0, 3))))
        spec = ResourceSliceSpec(
            driver="x", pool=pool, node_name=node, all_nodes=None if node else True, devices=devices
        )
        found.append(ResourceSlice(metadata=ObjectMeta(name=f"s{index}"), spec=spec))
    return found


@st.composite
def claims(draw: st.DrawFn) -> ResourceClaim:
    share = draw(st.booleans())
    result = DeviceRequestAllocationResult(
        request="r",
        driver="x",
        pool=draw(st.sampled_from(["p", "q"])),
        device=draw(st.sampled_from(["d0-0", "d1-0", "d1-1"])),
        share_id=str(draw(st.integers(1, 9))) if share else None,
        consumed_capacity={"bandwidth": Quantity.parse(draw(st.integers(1, 9)))} if share else {},
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    name = f"c{draw(st.integers(0, 99))}"
    return ResourceClaim(metadata=ObjectMeta(name=name), status=ResourceClaimStatus(allocation=allocation))


def seen(stock: DeviceInventory) -> object:
    """Everything a search could see: names, what is taken, flaws."""
    views = [stock.get_node_view(node) for node in NODES]
    return [
        [
            [(shelf.pool, shelf.names, shelf.flaw) for shelf in view.pool_views],
            (view.shape.taken, view.shape.shared, view.shape.counters_left),
        ]
        for view in views
    ]


@effort(2)
@given(st.lists(slices(), min_size=2, max_size=4), st.data())
def test_changed_slices_equal_slices_from_the_start(steps: list[list[ResourceSlice]], data: st.DataObject):
    kept = DeviceInventory(steps[0], (), DeviceUsage(), judge)
    seen(kept)
    before = steps[0]
    for after in steps[1:]:
        # Some of the old objects stay the very same, as an informer keeps them.
        stay = data.draw(st.lists(st.sampled_from(before), unique_by=id)) if before else []
        now = [*stay, *(s for s in after if s.metadata.name not in {x.metadata.name for x in stay})]
        kept = kept.replace_slices(now)
        assert seen(kept) == seen(DeviceInventory(now, (), DeviceUsage(), judge))
        before = now


@effort(3)
@given(st.lists(claims(), max_size=8, unique_by=lambda claim: claim.metadata.name), st.data())
def test_released_devices_are_as_if_never_allocated(held: list[ResourceClaim], data: st.DataObject):
    gone = data.draw(st.lists(st.sampled_from(held), unique_by=id)) if held else []
    kept = [claim for claim in held if claim not in gone]
    left, expected = DeviceUsage.from_claims(held).remove_claims(gone), DeviceUsage.from_claims(kept)
    assert left.pools.keys() == expected.pools.keys()
    for pool, use in expected.pools.items():
        now = left.pools[pool]
        assert now.devices == use.devices
        assert now.whole.keys() == use.whole.keys()
        assert {d: _set(a) for d, a in now.shares.items()} == {d: _set(a) for d, a in use.shares.items()}
        assert {d: sorted(h) for d, h in now.holders.items()} == {
            d: sorted(h) for d, h in use.holders.items()
        }


def _set(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: nanos for name, nanos in amounts.items() if nanos}
