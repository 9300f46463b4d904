"""Feature gates: the table, what contradicts, what can be written on a command line."""

from __future__ import annotations

import pytest

from dray.errors import GateError
from dray.gates import GATES, GateSet, GateStage

DRA = "DynamicResourceAllocation"
OF_THE_SEEDS = (
    DRA,
    "DRAPrioritizedList",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
    "DRAResourceSlicePriority",
)


@pytest.mark.req("K3063-164", "K4816-092", "K5075-153", "K5773-036", "K5491-041")
@pytest.mark.parametrize("name", OF_THE_SEEDS)
def test_a_gate_of_the_specification_exists_is_on_and_can_be_switched_off(name):
    assert GateSet.from_defaults().is_enabled(name)
    off = GateSet(frozenset()) if name == DRA else GateSet.parse(f"{name}=false")
    assert not off.is_enabled(name)


def test_the_table_lists_every_gate_once_and_in_its_own_name():
    assert [gate.name for gate in GATES.values()] == list(GATES)
    assert set(GATES) == {
        *OF_THE_SEEDS,
        "DRAPartitionableDevices",
        "DRAAdminAccess",
        "DRADeviceTaints",
        "DRADeviceTaintRules",
        "DRAResourceClaimDeviceStatus",
        "DRADeviceBindingConditions",
        "DRAControlPlaneController",
    }
    assert all(needed in GATES for gate in GATES.values() for needed in gate.requires)
    assert all(gate.about for gate in GATES.values())


def test_all_gates_are_on_unless_told_otherwise():
    assert GateSet.from_defaults().enabled_names == frozenset(GATES)
    assert GateSet.parse("") == GateSet.parse(" , ") == GateSet.from_defaults()


@pytest.mark.req("K4816-093")
@pytest.mark.parametrize("name", [name for name in GATES if name != DRA])
def test_a_gate_that_needs_another_one_is_refused_without_it(name):
    with pytest.raises(GateError, match=f"`{name}` requires `{DRA}`, which is off"):
        GateSet(frozenset({name}))


def test_switching_a_requirement_off_names_who_needs_it():
    with pytest.raises(
        GateError, match=r"`DRADeviceBindingConditions` requires `DRAResourceClaimDeviceStatus`"
    ):
        GateSet.parse("DRAResourceClaimDeviceStatus=false")
    both = GateSet.parse("DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false")
    assert not both.is_enabled("DRAResourceClaimDeviceStatus")


def test_everything_can_be_off():
    gates = GateSet.parse(",".join(f"{name}=false" for name in GATES))
    assert gates.enabled_names == frozenset()
    assert [(gate.name, on) for gate, on in gates] == [(name, False) for name in GATES]


def test_a_set_lists_every_gate_with_its_state():
    gates = GateSet.parse("DRAAdminAccess=false")
    assert {gate.name: on for gate, on in gates} == {name: name != "DRAAdminAccess" for name in GATES}


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("DRAAdminAccess=false", {"DRAAdminAccess"}),
        (" DRAAdminAccess = False ,DRADeviceTaints=FALSE", {"DRAAdminAccess", "DRADeviceTaints"}),
        ("DRAAdminAccess=false,DRAAdminAccess=false", {"DRAAdminAccess"}),
        ("AllAlpha=false", {name for name, gate in GATES.items() if gate.stage is GateStage.ALPHA}),
        ("AllBeta=false", {name for name, gate in GATES.items() if gate.stage is GateStage.BETA}),
        (
            "DRAAdminAccess=true,AllBeta=false",
            {n for n, g in GATES.items() if g.stage is GateStage.BETA} - {"DRAAdminAccess"},
        ),
    ],
)
def test_what_is_not_named_keeps_its_default(text, off):
    assert GateSet.parse(text).enabled_names == frozenset(GATES) - off


def test_a_group_can_be_switched_back_on():
    nothing_new = GateSet.parse("AllAlpha=false")
    assert nothing_new.override({"AllAlpha": True}) == GateSet.from_defaults()
    assert nothing_new.enabled_names < GateSet.from_defaults().enabled_names


@pytest.mark.parametrize(
    "text", ["DRAAdminAccess", "DRAAdminAccess=", "DRAAdminAccess=yes", "=true", "DRAAdminAccess=true=false"]
)
def test_something_else_than_name_and_switch_is_refused(text):
    with pytest.raises(GateError):
        GateSet.parse(text)


def test_a_gate_cannot_be_both():
    with pytest.raises(GateError, match="`DRAAdminAccess` is both true and false"):
        GateSet.parse("DRAAdminAccess=true,DRAAdminAccess=false")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("DRAAdminAcces", "did you mean `DRAAdminAccess`?"),
        ("Zebra", "known gates: DynamicResourceAllocation, "),
    ],
)
def test_an_unknown_gate_is_refused_with_the_nearest_name(name, hint):
    for ask in (
        GateSet.from_defaults().is_enabled,
        lambda name: GateSet.parse(f"{name}=true"),
        lambda name: GateSet(frozenset({name})),
    ):
        with pytest.raises(GateError) as refused:
            ask(name)
        assert f"unknown feature gate `{name}`" in str(refused.value)
        assert hint in str(refused.value)
