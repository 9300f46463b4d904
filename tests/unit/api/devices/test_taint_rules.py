"""Slices with taint rules applied: which devices get which taints, and which objects stay the same."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.codec import decode_document, to_document
from dray.api.devices.taint_rules import (
    TaintedSlices,
    apply_taint_rules,
    apply_taint_rules_to_all,
    get_rule_name,
    rule_selects,
    rule_selects_everything,
)
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

OWN = DeviceTaint(key="own", effect="NoSchedule")


def rule(name: str = "r", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(**selector), taint=DeviceTaint(key=f"k-{name}", effect=effect)
    )
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


def published(
    pool: str = "p", driver: str = "d", devices: tuple[Device, ...] = (), name: str = ""
) -> ResourceSlice:
    found = devices or (Device(name="a", taints=(OWN,)), Device(name="b"))
    spec = ResourceSliceSpec(driver=driver, pool=ResourcePool(name=pool), devices=found)
    return ResourceSlice(metadata=ObjectMeta(name=name or f"{driver}-{pool}"), spec=spec)


def taints(of: ResourceSlice) -> dict[str, list[str]]:
    return {device.name: [taint.key for taint in device.taints] for device in of.spec.devices}


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({}, ["a", "b"]),
        ({"driver": "d"}, ["a", "b"]),
        ({"driver": "other"}, []),
        ({"pool": "p", "device": "b"}, ["b"]),
        ({"driver": "d", "pool": "other", "device": "b"}, []),
        ({"device": "c"}, []),
    ],
)
def test_a_rule_selects_devices_that_match_all_its_fields(selector, chosen):
    one = rule(**selector)
    seen = apply_taint_rules(published(), [one])
    assert [name for name, keys in taints(seen).items() if "k-r" in keys] == chosen
    assert [name for name in ("a", "b") if rule_selects(one, "d", "p", name)] == chosen
    assert rule_selects_everything(one) == (selector == {})


def test_a_rule_without_a_selector_selects_nothing():
    nobody = replace(rule(), spec=replace(rule().spec, device_selector=None))
    assert not rule_selects(nobody, "d", "p", "a")
    assert not rule_selects_everything(nobody)
    before = published()
    assert apply_taint_rules(before, [nobody]) is before


def test_an_empty_selector_and_none_stay_what_they_are_on_the_wire():
    everything = to_document(rule())
    assert everything["spec"]["deviceSelector"] == {}
    assert decode_document(everything).object.spec.device_selector == DeviceTaintSelector()
    del everything["spec"]["deviceSelector"]
    assert decode_document(everything).object.spec.device_selector is None


def test_taints_of_rules_follow_those_of_the_driver_by_the_names_of_the_rules():
    (seen,) = apply_taint_rules_to_all([published()], [rule("z"), rule("b", device="b"), rule("c", "None")])
    assert taints(seen) == {"a": ["own", "k-c", "k-z"], "b": ["k-b", "k-c", "k-z"]}
    assert [get_rule_name(taint) for taint in seen.spec.devices[0].taints] == ["", "c", "z"]


def test_what_no_rule_selects_is_the_very_same():
    here, there = published(), published("q")
    before = to_document(here)
    seen = apply_taint_rules_to_all([here, there], [rule(pool="p", device="a")])
    assert seen[1] is there
    assert seen[0].spec.devices[1] is here.spec.devices[1]
    assert to_document(here) == before
    assert apply_taint_rules_to_all([here], []) == [here]


def names(changed: list[ResourceSlice]) -> list[str]:
    return sorted(each.metadata.name for each in changed)


def cluster(*slices: Any) -> TaintedSlices:
    kept = TaintedSlices()
    for each in slices:
        kept.upsert_slice(each)
    return kept


def test_adding_changing_and_removing_a_rule_affects_only_selected_slices():
    kept = cluster(published("p"), published("q"), published("p", "e"))
    assert names(kept.upsert_rule(rule(driver="d"))) == ["d-p", "d-q"]
    assert names(kept.upsert_rule(rule(driver="d"))) == []
    assert names(kept.upsert_rule(rule(driver="d", pool="p"))) == ["d-q"]
    assert names(kept.upsert_rule(rule(driver="e"))) == ["d-p", "e-p"]
    assert names(kept.remove_rule("r")) == ["e-p"]
    assert list(kept.slices) == [published("p"), published("q"), published("p", "e")]


def test_a_slice_that_changes_keeps_the_taints_of_rules():
    kept = cluster(published())
    kept.upsert_rule(rule(device="b"))
    other = published(devices=(Device(name="b"), Device(name="c")))
    assert taints(kept.upsert_slice(other)) == {"b": ["k-r"], "c": []}
    assert kept.get("d-p") is not None
    gone = kept.remove_slice("d-p")
    assert gone is not None
    assert taints(gone) == {"b": ["k-r"], "c": []}
    assert kept.remove_slice("d-p") is None
    assert names(kept.remove_rule("r")) == []


def test_an_unknown_rule_may_be_removed():
    kept = cluster(published())
    assert kept.remove_rule("never seen") == []
    assert kept.get("d-p") == published()
