"""Devices and pools in plain values, validated at once."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dray.driver import Capacity, InvalidDeviceError, Pool, Quantity, Reach, Slice, Version, device
from dray.driver.devices import group_into_pools
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

Q = Quantity.parse


def test_plain_values_become_attributes_and_capacities() -> None:
    assert device(
        "gpu-0",
        attributes={
            "model": "a100",
            "index": 0,
            "ecc": True,
            "driverVersion": Version("1.2.3"),
            "roots": ["a", "b"],
            "numa": (0, 1),
            "versions": [Version("1.0.0")],
        },
        capacity={"memory": "80Gi", "cores": 7},
    ) == Device(
        name="gpu-0",
        attributes={
            "model": DeviceAttribute(string_value="a100"),
            "index": DeviceAttribute(int_value=0),
            "ecc": DeviceAttribute(bool_value=True),
            "driverVersion": DeviceAttribute(version_value="1.2.3"),
            "roots": DeviceAttribute(string_values=("a", "b")),
            "numa": DeviceAttribute(int_values=(0, 1)),
            "versions": DeviceAttribute(version_values=("1.0.0",)),
        },
        capacity={"memory": DeviceCapacity(value=Q("80Gi")), "cores": DeviceCapacity(value=Q(7))},
    )


def test_everything_else_a_device_can_have() -> None:
    made = device(
        "nic-0",
        capacity={"bandwidth": Capacity("10G", default="100M", min="100M", max="5G", step="100M")},
        shared=True,
        draws={"card": {"queues": 4}},
        taints=["example.com/old=yes:NoSchedule", "example.com/hot:NoExecute"],
        nodes={"zone": "a"},
        binds_to_node=True,
        binding_conditions=["Attached"],
        binding_failure_conditions=["Failed"],
    )
    policy = CapacityRequestPolicy(
        default=Q("100M"), valid_range=CapacityRequestPolicyRange(min=Q("100M"), max=Q("5G"), step=Q("100M"))
    )
    zone = NodeSelectorRequirement(key="zone", operator="In", values=("a",))
    assert made == Device(
        name="nic-0",
        capacity={"bandwidth": DeviceCapacity(value=Q("10G"), request_policy=policy)},
        allow_multiple_allocations=True,
        consumes_counters=(
            DeviceCounterConsumption(counter_set="card", counters={"queues": Counter(value=Q(4))}),
        ),
        taints=(
            DeviceTaint(key="example.com/old", value="yes", effect="NoSchedule"),
            DeviceTaint(key="example.com/hot", effect="NoExecute"),
        ),
        node_selector=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(zone,)),)),
        binds_to_node=True,
        binding_conditions=("Attached",),
        binding_failure_conditions=("Failed",),
    )
    values = device("nic-0", shared=True, capacity={"b": Capacity(10, default=2, values=[2, 4])})
    assert values.capacity["b"].request_policy == CapacityRequestPolicy(
        default=Q(2), valid_values=(Q(2), Q(4))
    )
    assert device("d", nodes="node-b").node_name == "node-b"
    assert device("d", nodes=Reach.ALL_NODES).all_nodes is True


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attributes": {"m": 1.5}}, "attributes[m]: expected a text, a whole number, a bool"),
        ({"attributes": {"m": []}}, "attributes[m]: a list must not be empty"),
        ({"attributes": {"m": [1, "a"]}}, "attributes[m]: a list holds values of one type"),
        ({"attributes": {"m": "x" * 99}}, "attributes[m].string: Too long"),
        ({"attributes": {"not a name": 1}}, "attributes: Invalid value"),
        ({"capacity": {"memory": "80Gz"}}, "capacity[memory]: expected an amount, for example `80Gi`"),
        ({"capacity": {"memory": Capacity("1G", min="x")}}, "capacity[memory].min: expected an amount"),
        ({"capacity": {"m": Capacity(9, default=1)}}, "capacity[m].requestPolicy: Forbidden"),
        ({"capacity": {"m": "-1"}}, "capacity[m].value: Invalid value"),
        ({"draws": {"card": {}}}, "consumesCounters[0].counters: Required value"),
        ({"taints": ["nonsense"]}, "taints: expected `key=value:effect`"),
        ({"taints": ["a:Sometimes"]}, "taints[0].effect: Unsupported value"),
        ({"binding_conditions": ["A"]}, "bindingFailureConditions"),
    ],
)
def test_mistakes_are_errors_that_name_the_device_and_the_field(fields: Any, message: str) -> None:
    with pytest.raises(InvalidDeviceError) as wrong:
        device("gpu-0", **fields)
    assert str(wrong.value).startswith("device `gpu-0`: ")
    assert message in str(wrong.value)


def test_an_invalid_device_name_is_an_error() -> None:
    with pytest.raises(InvalidDeviceError, match="device `GPU 0`: name: Invalid value"):
        device("GPU 0")


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("atributes", "`attributes`"), ("share", "`shared`"), ("counters", "`attributes`, .*`draws`")],
)
def test_an_unknown_device_field_is_an_error(misspelt: str, meant: str) -> None:
    with pytest.raises(
        InvalidDeviceError, match=f"device `a`: there is no `{misspelt}`; did you mean {meant}"
    ):
        device("a", **{misspelt: OTHER})


def test_devices_without_a_pool_are_those_of_the_node() -> None:
    loose, pooled = device("a"), device("b")
    assert group_into_pools([loose, Pool("fabric", [pooled], priority=3)], "node-a") == (
        Pool("node-a", [loose]),
        Pool("fabric", [pooled], priority=3),
    )


def test_pools_have_slices_with_priorities_and_counters() -> None:
    first, second, third = (device(name) for name in "abc")
    pool = Pool("p", [first, Slice([second], priority=5), third], counters={"card": {"memory": "40Gi"}})
    assert pool.devices == (first, third, second)
    assert [part.priority for part in pool.slices] == [None, 5]
    assert pool.counters == (CounterSet(name="card", counters={"memory": Counter(value=Q("40Gi"))}),)


OTHER: Any = [{"name": "b"}]


@pytest.mark.parametrize(
    ("list_devices", "message"),
    [
        (lambda: [Pool("p"), Pool("p")], "pool `p`: `devices` yields it twice"),
        (
            lambda: [device("a"), Pool("node-a")],
            "pool `node-a`: `devices` yields it as a pool, and yields devices without",
        ),
        (lambda: [Pool("p", [device("a"), device("a")])], "pool `p`: device `a` is in it twice"),
        (lambda: ["gpu-0"], "`devices`: expected values of `Device` and `Pool`.*, got `'gpu-0'`"),
        (
            lambda: [Pool("p", [device("a"), *OTHER])],
            "pool `p`: expected values of `Device` and `Slice`",
        ),
        (lambda: [Pool("p", [Slice(OTHER)])], "a slice: expected values of `Device`"),
        (
            lambda: [
                Pool("p", [device("a", draws={"cord": {"memory": 1}})], counters={"card": {"memory": 2}})
            ],
            "pool `p`: device `a` draws `memory` from `cord`, which the pool's `counters` do not have",
        ),
        (
            lambda: [
                Pool("p", [device("a", draws={"card": {"cores": 1}})], counters={"card": {"memory": 2}})
            ],
            "pool `p`: device `a` draws `cores` from `card`, which",
        ),
        (lambda: [device("a", draws={"card": {"memory": 1}})], "pool `node-a`: device `a` draws `memory`"),
    ],
)
def test_inconsistent_pools_are_errors(list_devices: Any, message: str) -> None:
    with pytest.raises(InvalidDeviceError, match=message):
        group_into_pools(list_devices(), "node-a")


@pytest.mark.req("K5075-024")
def test_the_documentation_warns_against_changing_the_policy_of_allocated_shares() -> None:
    import dray.driver.devices

    text = " ".join((dray.driver.devices.__doc__ or "").split())
    assert "Do not change the policy of a capacity" in text
    assert "while claims hold the device" in text
    assert "Do not change it while the device is allocated" in " ".join((Capacity.__doc__ or "").split())


@pytest.mark.req("K3063-133")
def test_the_documentation_asks_authors_to_do_little_in_prepare() -> None:
    import dray.driver.base

    text = " ".join((dray.driver.base.__doc__ or "").split())
    assert "`prepare` should do little: what can fail belongs into `devices` or the allocation" in text
