"""Which of several allocations was stored first, and whether they fit beside each other."""

from __future__ import annotations

from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceCounterConsumption,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.scheduler.binding.stored_allocations import StoredAllocations
from dray.values.quantity import Quantity


def build_claim(name: str, revision: int, *devices: str, admin: bool = False) -> ResourceClaim:
    results = tuple(
        DeviceRequestAllocationResult(
            request="r", driver="d", pool="p", device=device, admin_access=admin or None
        )
        for device in devices
    )
    allocation = AllocationResult(devices=DeviceAllocationResult(results=results)) if devices else None
    metadata = ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}", resource_version=str(revision))
    return ResourceClaim(metadata=metadata, status=ResourceClaimStatus(allocation=allocation))


def observe(*claims: ResourceClaim, slices: tuple[ResourceSlice, ...] = ()) -> StoredAllocations:
    seen = StoredAllocations(lambda _pool: slices)
    for claim in claims:
        seen.observe(claim, is_listed=False)
    return seen


def find(seen: StoredAllocations, claim: ResourceClaim) -> tuple[list[str], list[str]]:
    """What says that a claim has to yield at once, and what says so in the end."""
    earlier = seen.find_duplicates(claim, earlier_only=True)
    others = seen.find_duplicates(claim, earlier_only=False)
    return [denial.message for denial in earlier], [denial.message for denial in others]


HELD = "device d/p/gpu-0 is held by claim ml/{}"


def test_of_two_claims_the_one_that_was_stored_later_yields():
    first, second = build_claim("first", 7, "gpu-0"), build_claim("second", 9, "gpu-0")
    seen = observe(first, second)
    assert find(seen, second) == ([HELD.format("first")], [HELD.format("first")])
    assert find(seen, first) == ([], [HELD.format("second")])


def test_a_later_write_to_a_claim_does_not_change_when_it_was_allocated():
    first, second = build_claim("first", 7, "gpu-0"), build_claim("second", 9, "gpu-0")
    seen = observe(first, second, build_claim("first", 12, "gpu-0"))
    assert find(seen, second)[0] == [HELD.format("first")]
    assert find(seen, build_claim("first", 12, "gpu-0"))[0] == []


def test_an_allocation_that_a_list_shows_counts_as_stored_first():
    ours = build_claim("ours", 7, "gpu-0")
    seen = observe(ours)
    seen.observe(build_claim("theirs", 30, "gpu-0"), is_listed=True)
    assert find(seen, ours)[0] == [HELD.format("theirs")]


def test_what_is_given_back_or_deleted_is_in_nobodys_way():
    ours = build_claim("ours", 9, "gpu-0")
    seen = observe(build_claim("theirs", 7, "gpu-0"), ours, build_claim("theirs", 11))
    assert find(seen, ours) == ([], [])
    seen = observe(theirs := build_claim("theirs", 7, "gpu-0"), ours)
    seen.forget(theirs)
    assert find(seen, ours) == ([], [])


def test_a_claim_that_is_allocated_anew_is_ordered_anew():
    ours = build_claim("ours", 9, "gpu-0")
    seen = observe(build_claim("theirs", 7, "gpu-0"), build_claim("theirs", 8), ours)
    seen.observe(build_claim("theirs", 12, "gpu-0"), is_listed=False)
    assert find(seen, ours) == ([], [HELD.format("theirs")])


def test_other_devices_and_admin_access_are_in_nobodys_way():
    ours = build_claim("ours", 9, "gpu-0")
    seen = observe(build_claim("a", 7, "gpu-1"), build_claim("b", 8, "gpu-0", admin=True), ours)
    assert find(seen, ours) == ([], [])
    admin = build_claim("admin", 10, "gpu-0", admin=True)
    seen.observe(admin, is_listed=False)
    assert find(seen, admin) == ([], [])


def test_devices_that_draw_from_the_same_counters_are_checked_together():
    draws = (
        DeviceCounterConsumption(counter_set="set", counters={"slots": Counter(value=Quantity.parse(2))}),
    )
    counters = CounterSet(name="set", counters={"slots": Counter(value=Quantity.parse(3))})
    pool = ResourcePool(name="p", generation=1, resource_slice_count=2)
    devices = tuple(Device(name=name, consumes_counters=draws) for name in ("gpu-0", "gpu-1"))
    slices = (
        ResourceSlice(
            metadata=ObjectMeta(name="c", resource_version="1"),
            spec=ResourceSliceSpec(driver="d", node_name="n", pool=pool, shared_counters=(counters,)),
        ),
        ResourceSlice(
            metadata=ObjectMeta(name="d", resource_version="2"),
            spec=ResourceSliceSpec(driver="d", node_name="n", pool=pool, devices=devices),
        ),
    )
    first, second = build_claim("first", 7, "gpu-0"), build_claim("second", 9, "gpu-1")
    seen = observe(first, second, slices=slices)
    (message,), _ = find(seen, second)
    assert "counter" in message
    assert find(seen, first)[0] == []


def test_the_highest_revision_is_that_of_any_claim():
    seen = observe(build_claim("a", 7), build_claim("b", 5))
    assert (seen.seen_revision, seen.observed) == (7, 0)
    seen.forget(build_claim("a", 9))
    seen.observe(build_claim("b", 8, "gpu-0"), is_listed=False)
    seen.observe(build_claim("b", 11, "gpu-0"), is_listed=False)
    assert (seen.seen_revision, seen.observed) == (11, 1)
