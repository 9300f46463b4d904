"""Gate filter of the allocator: what a disabled gate clears, withholds or refuses."""

from __future__ import annotations

import msgspec
import pytest

from dray.allocator.feature_gates import AllocatorGateFilter, admit_claims, admit_slices
from dray.api.resource import DeviceTaint, DeviceToleration
from dray.errors import UnanswerableClaimError
from dray.gates import GATES, GateSet
from dray.values.node_selectors import build_node_name_selector
from tests.brute.builders import (
    asking,
    budget,
    capacity,
    claim,
    device,
    devices,
    distinct,
    draws,
    first_of,
    holding,
    labelled,
    match,
    partitioned,
    policy,
    published,
    request,
    result,
)
from tests.brute.laws import results_of
from tests.brute.outcome import picked, world
from tests.property.strategies.api import without


def answer(gate, slices, *claims, **more):
    """Who gets what behind a closed gate."""
    gates = without(gate)
    admitted = admit_slices([slices] if not isinstance(slices, list) else slices, gates)
    return picked(world(admitted, *admit_claims(claims, gates), **more))


REFUSED = {
    "alternatives": (
        "DRAPrioritizedList",
        claim(request("r0"), first_of("r1", ("s", asking()))),
        "claim ml/claim: spec.devices.requests[1].firstAvailable: has alternatives (`firstAvailable`), "
        "but the DRAPrioritizedList feature is disabled",
    ),
    "amounts": (
        "DRAConsumableCapacity",
        claim(request("r", capacity={"mem": 1})),
        "claim ml/claim: spec.devices.requests[0].exactly.capacity: has capacity requests, "
        "but the DRAConsumableCapacity feature is disabled",
    ),
    "amounts in an alternative": (
        "DRAConsumableCapacity",
        claim(first_of("r", ("s0", asking()), ("s1", asking(capacity={"mem": 1})))),
        "claim ml/claim: spec.devices.requests[0].firstAvailable[1].capacity: has capacity requests, "
        "but the DRAConsumableCapacity feature is disabled",
    ),
    "distinct values": (
        "DRAConsumableCapacity",
        claim(request("r"), distinct("a/b")),
        "claim ml/claim: spec.devices.constraints[0].distinctAttribute: has a constraint of distinct values "
        "(`distinctAttribute`), but the DRAConsumableCapacity feature is disabled",
    ),
    "admin access": (
        "DRAAdminAccess",
        claim(request("r", admin_access=True)),
        "claim ml/claim: spec.devices.requests[0].exactly.adminAccess: asks for admin access, "
        "but the DRAAdminAccess feature is disabled",
    ),
    "admin access said to be off": (
        "DRAAdminAccess",
        claim(request("r", admin_access=False)),
        "claim ml/claim: spec.devices.requests[0].exactly.adminAccess: asks for admin access, "
        "but the DRAAdminAccess feature is disabled",
    ),
}


@pytest.mark.req("K4816-058", "K4816-099", "K5075-150", "K5075-172", "K4816-032")
@pytest.mark.parametrize("case", REFUSED)
def test_a_claim_that_needs_a_closed_gate_is_a_fault_that_names_it(case):
    gate, asked, text = REFUSED[case]
    with pytest.raises(UnanswerableClaimError) as fault:
        admit_claims([claim(request("fine"), name="other"), asked], without(gate))
    assert str(fault.value) == text
    assert admit_claims([asked], GateSet.from_defaults()) == [asked]


@pytest.mark.req("K4816-061", "K4816-099")
def test_without_alternatives_the_gate_changes_nothing():
    asked = claim(request("r0", 2), request("r1"))
    slices = published(*devices("a", "b", "c"))
    assert (
        answer("DRAPrioritizedList", slices, asked)
        == picked(world(slices, asked))
        == ["r0=a", "r0=b", "r1=c"]
    )


@pytest.mark.req("K5075-151", "K5075-160")
def test_without_consumable_capacity_devices_are_whole():
    slices = published(device("a", shared=True, capacity={"mem": capacity(4, policy(1))}))
    gate, one = "DRAConsumableCapacity", claim(request("r"))
    assert answer(gate, slices, one) == ["r=a"]
    assert answer(gate, slices, claim(request("r0"), request("r1"))) is None
    (found,) = results_of(world(admit_slices([slices], without(gate)), one))
    assert found.devices.results[0].share_id is None
    assert found.devices.results[0].consumed_capacity == {}
    shares = [holding(result("a", share="id", consumed={"mem": 1}))]
    assert answer(gate, slices, one, held=shares) is None


@pytest.mark.req("K5491-044", "K5491-046")
def test_without_list_attributes_lists_are_not_there():
    """Nothing matches by accident: devices with lists are left out of constraints, those with scalars not."""
    lists, scalars = (
        published(device("a", numa=[1]), device("b", numa=[1])),
        published(*devices("c", "d", numa=1)),
    )
    asked = claim(request("r", 2), match("gpu.example/numa"))
    assert picked(world(lists, asked)) == ["r=a", "r=b"]
    assert answer("DRAListTypeAttributes", lists, asked) is None
    assert answer("DRAListTypeAttributes", scalars, asked) == ["r=c", "r=d"]


@pytest.mark.req("K5773-033")
def test_without_slice_priorities_everything_goes_by_name():
    slices = [
        published(device("a"), name="a", count=2, priority=1, pool_priority=1),
        published(device("b"), name="b", count=2, priority=2, pool_priority=2),
    ]
    sound = [
        published(device("a"), name="a", count=2, priority=1),
        published(device("b"), name="b", count=2, priority=2),
    ]
    one = claim(request("r"))
    assert picked(world(slices, one)) is None
    assert answer("DRAResourceSlicePriority", slices, one) == ["r=a"]
    assert picked(world(sound, one)) == ["r=b"]
    assert answer("DRAResourceSlicePriority", sound, one) == ["r=a"]


def test_without_partitions_devices_that_draw_counters_are_left_out():
    slices = [
        *partitioned(budget(slots=1), device("a", consumes_counters=(draws(slots=1),)), device("b")),
        published(device("c", all_nodes=True), name="own", pool="own", per_device_node_selection=True),
    ]
    gate, asked = "DRAPartitionableDevices", claim(request("r", "All"))
    assert picked(world(slices, asked)) == ["r=c", "r=a", "r=b"]
    assert answer(gate, slices, claim(request("r"))) == ["r=b"]
    assert answer(gate, slices, claim(request("r", 2))) is None
    # As in Kubernetes: a device that matches and cannot be had is missing from all of them.
    assert answer(gate, slices, asked) is None


BOUND = device("a", binding_conditions=("Attached",), binding_failure_conditions=("Lost",))
BINDING = "DRADeviceBindingConditions"


def test_without_binding_conditions_devices_that_need_them_are_withheld():
    slices = published(BOUND, device("b", binds_to_node=True), all_nodes=True)
    (found,) = results_of(world(admit_slices([slices], without(BINDING)), claim(request("r", "All"))))
    assert [result.device for result in found.devices.results] == ["b"]
    # A device that was published as bound to a node stays so: other nodes do not get it by closing a gate.
    assert found.node_selector == build_node_name_selector("n1")


def test_without_binding_conditions_a_held_device_still_draws_from_its_counters():
    drawing = (draws(slots=4),)
    slices = partitioned(
        budget(slots=4),
        msgspec.structs.replace(BOUND, consumes_counters=drawing),
        device("b", consumes_counters=drawing),
    )
    one = claim(request("r"))
    assert answer(BINDING, slices, one) == ["r=b"]
    assert answer(BINDING, slices, one, held=[holding(result("a"))]) is None


def test_without_binding_conditions_pools_that_have_them_still_come_last():
    slices = [published(BOUND, device("b")), published(device("c"), name="other", pool="z")]
    assert answer(BINDING, slices, claim(request("r"))) == ["r=c"]


def test_without_taints_nothing_is_tainted_and_nothing_tolerated():
    slices = published(device("a", taints=(DeviceTaint(key="hot", effect="NoSchedule"),)))
    asked = claim(request("r", tolerations=(DeviceToleration(operator="Exists"),)))
    gates = without("DRADeviceTaints")
    assert answer("DRADeviceTaints", slices, claim(request("r"))) == ["r=a"]
    (found,) = results_of(world(admit_slices([slices], gates), *admit_claims([asked], gates)))
    assert found.devices.results[0].tolerations == ()


@pytest.mark.parametrize("gate", GATES)
def test_objects_without_the_fields_of_a_gate_are_unchanged(gate):
    plain = published(device("a", numa=1, capacity={"mem": 1}), node_selector=labelled({"zone": "z1"}))
    asked = claim(request("r"), match("a/b"))
    gates = without(gate)
    assert admit_slices([plain], gates)[0] is plain
    assert admit_claims([asked], gates)[0] is asked


def test_the_gate_filter_applies_all_rules():
    gate_filter = AllocatorGateFilter.from_overrides({"DRAAdminAccess": False})
    with pytest.raises(UnanswerableClaimError, match="DRAAdminAccess"):
        gate_filter.admit_claims([claim(request("r", admin_access=True))])
    tainted = published(device("a", taints=(DeviceTaint(key="hot", effect="NoSchedule"),)))
    assert gate_filter.admit_slices([tainted]) == [tainted]
