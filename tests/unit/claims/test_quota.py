"""What objects count, and when it is too much."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.api.kinds import find_kind
from dray.claims import quota
from dray.values.quantity import Quantity

CLAIMS, PODS = find_kind("resource.k8s.io", "ResourceClaim"), find_kind("", "Pod")
COUNT = "count/resourceclaims.resource.k8s.io"


def usage(*requests: dict[str, Any]) -> dict[str, int]:
    assert CLAIMS is not None
    document = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}
    return quota.count_usage(CLAIMS, write_json(document))


def exactly(device_class: str, count: int = 1, **more: Any) -> dict[str, Any]:
    asked = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count} | more
    return {"name": "r", "exactly": asked}


def first(*alternatives: tuple[str, int | str]) -> dict[str, Any]:
    return {
        "name": "r",
        "firstAvailable": [
            {"name": f"a{i}", "deviceClassName": device_class}
            | (
                {"allocationMode": "All"}
                if count == "All"
                else {"allocationMode": "ExactCount", "count": count}
            )
            for i, (device_class, count) in enumerate(alternatives)
        ],
    }


def per_class(**numbers: int) -> dict[str, int]:
    return {COUNT: 1} | {
        f"{name}.deviceclass.resource.k8s.io/devices": number for name, number in numbers.items()
    }


def test_requests_count_their_devices_per_class():
    assert usage(exactly("gpu", 2), exactly("gpu", 3), exactly("nic")) == per_class(gpu=5, nic=1)


def test_all_counts_as_many_as_a_claim_can_hold():
    assert usage(exactly("gpu", 0, allocationMode="All")) == per_class(gpu=32)


def test_admin_access_counts_as_in_kubernetes():
    assert usage(exactly("gpu", 2, adminAccess=True)) == per_class(gpu=2)


@pytest.mark.req("K4816-004", "K4816-076")
def test_alternatives_count_the_worst_case_per_class():
    assert usage(first(("big", 1), ("small", 2), ("small", 4))) == per_class(big=1, small=4)
    assert usage(first(("big", 2), ("small", "All")), exactly("big", 1)) == per_class(big=3, small=32)


def test_pods_that_ended_are_objects_but_no_pods():
    assert PODS is not None
    assert quota.count_usage(PODS, b'{"status":{"phase":"Running"}}') == {"count/pods": 1, "pods": 1}
    assert quota.count_usage(PODS, b'{"status":{"phase":"Succeeded"}}') == {"count/pods": 1, "pods": 0}


def test_names_that_are_not_counted_are_recognised():
    for name in (
        "pods",
        "count/pods",
        COUNT,
        "gpu.deviceclass.resource.k8s.io/devices",
        "count/leases.coordination.k8s.io",
    ):
        assert quota.is_counted(name), name
    for name in ("requests.cpu", "count/nodes", "count/novelties", ".deviceclass.resource.k8s.io/devices"):
        assert not quota.is_counted(name), name


def test_only_raised_amounts_are_checked():
    hard = {"a": Quantity.parse("2"), "b": Quantity.parse("1")}
    assert quota.find_excess(hard, {"a": 1, "b": 5}, {"a": 1}) is None
    assert quota.find_excess(hard, {"a": 1, "b": 5}, {"a": 1, "b": -1}) is None
    beyond = quota.find_excess(hard, {"a": 1, "b": 5}, {"a": 2, "b": 1, "c": 9})
    assert beyond is not None
    assert (
        beyond.format_message("q") == "exceeded quota: q, requested: a=2,b=1, used: a=1,b=5, limited: a=2,b=1"
    )
