"""Warnings about valid objects that are almost certainly mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.validation import collect_warnings
from tests.unit.api.validation.building import (
    claim,
    claim_document,
    device,
    device_class,
    made,
    pod,
    request,
    slice_of,
    template,
)

BY_NAME = {"name": "gpu", "resourceClaimName": "my-claim"}
NO_REQUESTS = {**claim_document(), "spec": {}}


def rule(selector: dict[str, str] | None) -> Any:
    taint = {"key": "k", "effect": "NoExecute"}
    spec = {"taint": taint} if selector is None else {"taint": taint, "deviceSelector": selector}
    document = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "spec": spec}
    return made({**document, "metadata": {"name": "r"}})


CASES = {
    "a taint rule for a pool": (rule({"pool": "p"}), []),
    "a taint rule for every device": (rule({}), ["spec.deviceSelector"]),
    "a taint rule for no device": (rule(None), ["spec.deviceSelector"]),
    "a usual claim": (claim(), []),
    "a claim for nothing": (made(NO_REQUESTS), ["spec.devices.requests"]),
    "too many to fit": (claim(request(count=33)), ["spec.devices.requests[0].exactly.count"]),
    "too many to be sound": (claim(request(count=2**31)), []),
    "too many in a template": (
        template(request(count=33)),
        ["spec.spec.devices.requests[0].exactly.count"],
    ),
    "a usual slice": (slice_of(device()), []),
    "an empty slice": (slice_of(), ["spec"]),
    "a driver in upper case": (slice_of(device(), driver="GPU.example.com"), ["spec.driver"]),
    "a usual pod": (pod(BY_NAME, uses=[{"name": "gpu"}]), []),
    "a claim that no container uses": (pod(BY_NAME), ["spec.resourceClaims[0]"]),
    "kinds without cautions": (device_class(), []),
}


@pytest.mark.parametrize(("obj", "expected"), CASES.values(), ids=CASES)
def test_suspicious_objects_get_warnings(obj, expected):
    assert [caution.path for caution in collect_warnings(obj)] == expected


def test_a_warning_prints_its_path_and_text():
    (caution,) = collect_warnings(claim(request(count=40)))
    assert str(caution) == (
        "spec.devices.requests[0].exactly.count: "
        "40 devices are more than the 32 that one claim can hold; it can never fit"
    )
