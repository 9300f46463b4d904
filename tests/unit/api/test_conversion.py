"""Conversion of v1beta1 and of the pod spellings of KEP-3063, and translation of paths."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.api import codec, conversion
from dray.api.decode_report import list_field_names
from dray.api.kinds import KINDS, Kind, find_kind
from dray.api.resource import DeviceRequest, DeviceSubRequest, ExactDeviceRequest
from dray.errors import DecodeError
from tests.fieldtree import fields_of


def row(name: str, group: str = "resource.k8s.io") -> Kind:
    kind = find_kind(group, name)
    assert kind is not None
    return kind


CLAIM, TEMPLATE, SLICE, POD = (
    row("ResourceClaim"),
    row("ResourceClaimTemplate"),
    row("ResourceSlice"),
    row("Pod", ""),
)
EXACT: dict[str, Any] = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "adminAccess": True,
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "capacity": {"requests": {"memory": "1Gi"}},
}
SUB = {"name": "s", **{name: value for name, value in EXACT.items() if name != "adminAccess"}}
DEVICE = {
    "attributes": {"model": {"string": "a"}},
    "capacity": {"memory": {"value": "1Gi"}},
    "taints": [{"key": "a", "effect": "NoSchedule"}],
}
NESTED_CLAIM = {
    "devices": {"requests": [{"name": "a", "exactly": EXACT}, {"name": "b", "firstAvailable": [SUB]}]}
}
FLAT_CLAIM = {"devices": {"requests": [{"name": "a", **EXACT}, {"name": "b", "firstAvailable": [SUB]}]}}
FLAT_SLICE = {"driver": "d", "devices": [{"name": "x", **DEVICE}, {"name": "y"}]}
NESTED_SLICE = {"driver": "d", "devices": [{"name": "x", "basic": DEVICE}, {"name": "y", "basic": {}}]}

BOTH: dict[str, tuple[Kind, dict[str, Any], dict[str, Any]]] = {
    "claim": (CLAIM, {"spec": NESTED_CLAIM}, {"spec": FLAT_CLAIM}),
    "template": (TEMPLATE, {"spec": {"spec": NESTED_CLAIM}}, {"spec": {"spec": FLAT_CLAIM}}),
    "slice": (SLICE, {"spec": FLAT_SLICE}, {"spec": NESTED_SLICE}),
}


@pytest.mark.req("K4816-007", "K4816-009", "K4816-013")
@pytest.mark.parametrize("name", BOTH)
def test_the_old_version_spreads_requests_and_nests_devices(name):
    kind, internal, old = BOTH[name]
    internal = {"apiVersion": "resource.k8s.io/v1", "kind": kind.name, **internal}
    old = {"apiVersion": "resource.k8s.io/v1beta1", "kind": kind.name, **old}
    assert conversion.convert_from_internal(kind, "v1beta1", internal) == old
    assert conversion.convert_to_internal(kind, "v1beta1", old) == internal
    newer = {**internal, "apiVersion": "resource.k8s.io/v1beta2"}
    assert conversion.convert_from_internal(kind, "v1beta2", internal) == newer
    assert conversion.convert_to_internal(kind, "v1beta2", newer) == internal


@pytest.mark.req("K4816-013", "K4816-014")
def test_a_request_is_a_name_with_exactly_or_alternatives():
    assert set(list_field_names(DeviceRequest)) == {"name", "exactly", "firstAvailable"}
    requests = fields_of(conversion.get_struct_type(CLAIM, "v1beta1"))["spec.devices.requests"]
    old = {
        p.rpartition(".")[2]
        for p in fields_of(conversion.get_struct_type(CLAIM, "v1beta1"))
        if _directly_below(p, requests.pattern)
    }
    assert old == {"name", "firstAvailable", *list_field_names(ExactDeviceRequest)}
    assert conversion.get_struct_type(CLAIM, "v1beta2") is CLAIM.type


def _directly_below(pattern: str, holder: str) -> bool:
    return pattern.startswith(f"{holder}[].") and "." not in pattern.removeprefix(f"{holder}[].")


@pytest.mark.req("K4816-016")
def test_exact_requests_and_alternatives_are_types_of_their_own():
    assert not issubclass(DeviceSubRequest, ExactDeviceRequest)
    assert not issubclass(ExactDeviceRequest, DeviceSubRequest)


@pytest.mark.req("K4816-015", "K4816-043")
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize("field", ["adminAccess", "firstAvailable"])
def test_an_alternative_has_neither_admin_access_nor_alternatives(version, field):
    sub = {"name": "s", "deviceClassName": "gpu", field: True if field == "adminAccess" else [SUB]}
    document = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [sub]}]}},
    }
    decoded = codec.decode_document(document)
    assert [unknown.path for unknown in decoded.unknown_fields] == [
        f"spec.devices.requests[0].firstAvailable[0].{field}"
    ]
    assert decoded.object.spec.devices.requests[0].first_available == (
        DeviceSubRequest(name="s", device_class_name="gpu"),
    )


@pytest.mark.req("K4816-044")
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_alternatives_stand_in_requests_and_nowhere_else(version):
    places = {
        (kind.name, pattern)
        for kind in KINDS
        if version in kind.versions
        for pattern in fields_of(conversion.get_struct_type(kind, version))
        if pattern.endswith("firstAvailable")
    }
    assert places == {
        ("ResourceClaim", "spec.devices.requests[].firstAvailable"),
        ("ResourceClaimTemplate", "spec.spec.devices.requests[].firstAvailable"),
    }


@pytest.mark.req("K4816-042")
def test_a_client_without_alternatives_sees_no_class():
    old = codec.to_document(codec.decode_document({**_claim("v1"), "spec": NESTED_CLAIM}).object, "v1beta1")
    assert "deviceClassName" not in old["spec"]["devices"]["requests"][1]


def _claim(version: str) -> dict[str, Any]:
    return {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim", "metadata": {"name": "c"}}


def test_both_shapes_at_once_survive():
    document = {
        **_claim("v1"),
        "spec": {"devices": {"requests": [{"name": "a", "exactly": EXACT, "firstAvailable": [SUB]}]}},
    }
    decoded = codec.decode_document(document)
    assert codec.decode_document(codec.to_document(decoded.object, "v1beta1")).object == decoded.object


@pytest.mark.parametrize(
    "junk",
    [None, [], "x", 1, {"devices": None}, {"devices": {"requests": [None, 1]}}, {"devices": [1]}],
    ids=str,
)
@pytest.mark.parametrize("kind", [CLAIM, TEMPLATE, SLICE], ids=lambda kind: kind.name)
def test_conversion_leaves_unknown_fields_in_place(kind, junk):
    document = {"apiVersion": "resource.k8s.io/v1beta1", "kind": kind.name, "spec": junk}
    before = copy.deepcopy(document)
    assert conversion.convert_to_internal(kind, "v1beta1", document)["spec"] == junk
    assert conversion.convert_from_internal(kind, "v1beta1", document)["spec"] == junk
    assert document == before


@pytest.mark.parametrize(
    ("kind", "internal", "old"),
    [
        (CLAIM, "spec.devices.requests[0].exactly.count", "spec.devices.requests[0].count"),
        (CLAIM, "spec.devices.requests[0].exactly", "spec.devices.requests[0]"),
        (
            CLAIM,
            "spec.devices.requests[12].exactly.selectors[0].cel",
            "spec.devices.requests[12].selectors[0].cel",
        ),
        (
            CLAIM,
            "spec.devices.requests[0].firstAvailable[1].count",
            "spec.devices.requests[0].firstAvailable[1].count",
        ),
        (CLAIM, "spec.devices.requests[0].name", "spec.devices.requests[0].name"),
        (CLAIM, "spec.devices.config[0].opaque", "spec.devices.config[0].opaque"),
        (TEMPLATE, "spec.spec.devices.requests[3].exactly.count", "spec.spec.devices.requests[3].count"),
        (SLICE, "spec.devices[0].attributes[a.b/c].string", "spec.devices[0].basic.attributes[a.b/c].string"),
        (SLICE, "spec.devices[10].nodeName", "spec.devices[10].basic.nodeName"),
        (SLICE, "spec.devices[0].name", "spec.devices[0].name"),
        (SLICE, "spec.devices[0]", "spec.devices[0]"),
        (SLICE, "spec.devices", "spec.devices"),
        (SLICE, "spec.pool.name", "spec.pool.name"),
        (row("DeviceClass"), "spec.selectors[0]", "spec.selectors[0]"),
    ],
)
def test_errors_name_a_field_by_its_path_in_the_version_as_written(kind, internal, old):
    assert conversion.translate_path(kind, "v1beta1", internal) == old
    assert conversion.translate_path(kind, "v1beta2", internal) == internal
    assert conversion.translate_path(kind, "v1", internal) == internal


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not kind.open], ids=lambda kind: kind.qualified_name
)
def test_every_translated_path_exists_in_that_version(kind):
    for version in kind.versions:
        there = fields_of(conversion.get_struct_type(kind, version))
        for pattern in fields_of(kind.type):
            one = pattern.replace("[]", "[0]").replace("{}", "[key]")
            place = conversion.translate_path(kind, version, one)
            if place.endswith("requests[0]"):  # `exactly` itself is spread over the request
                continue
            assert place.replace("[0]", "[]").replace("[key]", "{}") in there


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_legacy_spellings_of_pods_are_normalized():
    old = pod(
        containers=[
            {"name": "a", "image": "i", "resources": {"claims": ["gpu", {"name": "nic"}]}},
            {"name": "b"},
        ],
        initContainers=[{"name": "c", "resources": {"claims": ["gpu"]}}],
        resourceClaims=[
            {
                "name": "gpu",
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "resourceClassName": "gpu",
                    "parameters": {"x": 1},
                },
            },
            {"name": "nic", "resourceClaimName": "nic"},
        ],
    )
    before = copy.deepcopy(old)
    tidy = pod(
        containers=[
            {"name": "a", "image": "i", "resources": {"claims": [{"name": "gpu"}, {"name": "nic"}]}},
            {"name": "b"},
        ],
        initContainers=[{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        resourceClaims=[
            {
                "name": "gpu",
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"resourceClassName": "gpu", "parameters": {"x": 1}},
                },
            },
            {"name": "nic", "resourceClaimName": "nic"},
        ],
    )
    assert conversion.normalize_document(POD, old) == tidy
    assert conversion.normalize_document(POD, tidy) is tidy
    assert old == before
    decoded = codec.decode_document(old)
    assert decoded.unknown_fields == ()
    assert decoded.object == codec.decode_document(tidy).object
    assert decoded.object.spec.resource_claims[0].template.spec.resource_class_name == "gpu"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {"containers": None},
        {
            "containers": [
                None,
                1,
                {"resources": None},
                {"resources": {"claims": None}},
                {"resources": {"claims": {}}},
            ]
        },
        {
            "resourceClaims": [
                None,
                1,
                {"template": None},
                {"template": {}},
                {"template": {"spec": None, "parameters": 1}},
            ]
        },
    ],
    ids=str,
)
def test_a_pod_of_any_shape_is_left_as_it_is(spec):
    document = {"spec": spec}
    assert conversion.normalize_document(POD, document) is document


def test_other_kinds_have_no_legacy_spellings():
    document = {"spec": {"containers": [{"resources": {"claims": ["gpu"]}}]}}
    assert conversion.normalize_document(CLAIM, document) is document


def test_an_inline_template_may_not_hold_just_anything():
    template = {"spec": {"resourceClassName": "gpu", "resourceClass": "gpu"}}
    decoded = codec.decode_document(pod(resourceClaims=[{"name": "gpu", "template": template}]))
    (unknown,) = decoded.unknown_fields
    assert unknown.path == "spec.resourceClaims[0].template.spec.resourceClass"
    assert unknown.suggestion == "resourceClassName"
    with pytest.raises(DecodeError):
        codec.decode_document(pod(resourceClaims=[{"name": "gpu", "template": {"spec": []}}]))
