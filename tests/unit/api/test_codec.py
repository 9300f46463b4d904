"""Decoding and encoding: every path gives the same object, every problem is reported, no input crashes."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from dray.api import codec
from dray.api.kinds import find_kind
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, OpaqueDeviceConfiguration, ResourceClaim
from dray.errors import DecodeError
from dray.values.quantity import QuantityForm

V1 = "resource.k8s.io/v1"


def claim(spec: Any = None, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "ml"},
        "spec": {"devices": {"requests": [{"name": "a"}]}} if spec is None else spec,
        **more,
    }


def a_slice(device: Any, version: str = "v1") -> dict[str, Any]:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "node-a", "devices": [device]}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": spec,
    }


def device_class(parameters: str) -> bytes:
    opaque = f'{{"driver": "gpu.example.com", "parameters": {parameters}}}'
    head = f'{{"apiVersion": "{V1}", "kind": "DeviceClass", "metadata": {{"name": "gpu"}}'
    return f'{head}, "spec": {{"config": [{{"opaque": {opaque}}}]}}}}'.encode()


def on_every_way(document: dict[str, Any]) -> list[codec.DecodedObject]:
    return [codec.decode(json.dumps(document).encode()), codec.decode_document(document)]


def refusals(document: dict[str, Any]) -> list[DecodeError]:
    refused = []
    for read in (
        lambda: codec.decode(json.dumps(document).encode()),
        lambda: codec.decode_document(document),
    ):
        with pytest.raises(DecodeError) as caught:
            read()
        refused.append(caught.value)
    return refused


def test_a_claim_is_read_and_written():
    for decoded in on_every_way(claim()):
        assert decoded.kind is find_kind("resource.k8s.io", "ResourceClaim")
        assert (decoded.version, decoded.unknown_fields, decoded.document) == ("v1", (), None)
        assert isinstance(decoded.object, ResourceClaim)
        assert decoded.object.metadata.name == "gpu"
        assert json.loads(codec.encode(decoded.object)) == claim()
        assert codec.to_document(decoded.object) == claim()


@pytest.mark.parametrize("written", ["v1", "v1beta2", "v1beta1"])
def test_every_version_becomes_the_internal_one(written):
    for decoded in on_every_way(claim(version=written)):
        assert decoded.version == written
        assert decoded.object.api_version == V1
        assert codec.to_document(decoded.object, written) == claim(version=written)


def test_an_object_is_only_written_in_versions_that_are_served():
    decoded = codec.decode_document(claim())
    for write in (codec.encode, codec.to_document):
        with pytest.raises(
            DecodeError, match="not served in `v1alpha3`; expected one of v1, v1beta2, v1beta1"
        ):
            write(decoded.object, "v1alpha3")


def test_open_objects_are_not_written_from_their_projection():
    pod = codec.decode_document({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    with pytest.raises(TypeError, match="open objects are changed as documents"):
        codec.encode(pod.object)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_unknown_fields_are_reported_and_the_rest_is_used(version):
    document = claim({"devices": {"requests": [{"name": "a", "Frist": 1}]}, "device": {}}, version, extra=1)
    for decoded in on_every_way(document):
        assert [field.path for field in decoded.unknown_fields] == [
            "spec.devices.requests[0].Frist",
            "spec.device",
            "extra",
        ]
        assert decoded.object == codec.decode_document(claim()).object


@pytest.mark.parametrize(
    ("version", "unknown"),
    [
        ("v1", "spec.devices[0].basic"),
        ("v1beta2", "spec.devices[0].basic"),
        ("v1beta1", "spec.devices[0].attributes"),
    ],
)
def test_unknown_fields_are_reported_in_the_version_as_written(version, unknown):
    attributes = {"model": {"string": "a100"}}
    device = {"name": "gpu-0", "attributes": attributes, "basic": {"attributes": attributes}}
    for decoded in on_every_way(a_slice(device, version)):
        assert [field.path for field in decoded.unknown_fields] == [unknown]
        assert decoded.object.spec.devices[0].attributes["model"].string_value == "a100"


def test_every_wrong_type_is_reported_with_its_path():
    document = claim(
        {"devices": {"requests": [{"name": 1, "exactly": {"count": "2", "adminAccess": "yes"}}]}}
    )
    document["metadata"]["labels"] = ["a"]
    for error in refusals(document):
        assert {(problem.path, str(problem).split(": ", 1)[1]) for problem in error.problems} == {
            ("spec.devices.requests[0].name", "Invalid value: 1: expected a string, got a number"),
            (
                "spec.devices.requests[0].exactly.count",
                'Invalid value: "2": expected an integer, got a string',
            ),
            (
                "spec.devices.requests[0].exactly.adminAccess",
                'Invalid value: "yes": expected `true` or `false`, got a string',
            ),
            ("metadata.labels", 'Invalid value: "<a list>": expected a map, got a list'),
        }
        assert str(error).startswith('ResourceClaim in version "v1" cannot be read: ')


def test_wrong_types_are_named_in_the_version_as_written():
    flat = claim({"devices": {"requests": [{"name": "a", "count": "2"}]}}, "v1beta1")
    for error in refusals(flat):
        assert [problem.path for problem in error.problems] == ["spec.devices.requests[0].count"]


@pytest.mark.parametrize("count", [1.0, 1.5, True, 2**63, -(2**63) - 1, 10**30])
def test_a_count_is_an_integer_of_64_bits(count):
    for error in refusals(claim({"devices": {"requests": [{"exactly": {"count": count}}]}})):
        assert [problem.path for problem in error.problems] == ["spec.devices.requests[0].exactly.count"]


@pytest.mark.parametrize("count", [2**63 - 1, -(2**63), 0])
def test_a_count_uses_all_64_bits(count):
    for decoded in on_every_way(claim({"devices": {"requests": [{"exactly": {"count": count}}]}})):
        assert decoded.object.spec.devices.requests[0].exactly.count == count


@pytest.mark.parametrize("value", ["1.5.5", "10GB", [], {}, True, "", "1" * 65])
def test_what_is_no_quantity_is_named(value):
    document = a_slice({"name": "gpu-0", "capacity": {"memory": {"value": value}}})
    for error in refusals(document):
        assert [problem.path for problem in error.problems] == ["spec.devices[0].capacity[memory].value"]


@pytest.mark.parametrize("first", ["1e3", "1000.0"])
def test_a_quantity_written_as_a_number_keeps_its_form_despite_the_cache(first):
    """Equal numbers in two spellings are two forms; a cache by value would give both the first one's."""

    def form(text: str) -> QuantityForm:
        data = json.dumps(a_slice({"capacity": {"m": {"value": "@"}}})).replace('"@"', text).encode()
        quantity = codec.decode(data).object.spec.devices[0].capacity["m"].value
        assert quantity == 1000
        return quantity.form

    codec._decode_custom.cache_clear()
    form(first)
    assert (form("1e3"), form("1000.0"), form("1000")) == (
        QuantityForm.EXPONENT,
        QuantityForm.DECIMAL,
        QuantityForm.DECIMAL,
    )


@pytest.mark.req("K3063-027")
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_opaque_parameters_keep_every_digit_through_every_version(version):
    parameters = b'{"big":123456789012345678901234567890,"fine":0.123456789012345678901234567890,"one":1.10}'
    decoded = codec.decode(device_class(parameters.decode()))
    again = codec.decode(codec.encode(decoded.object, version))
    assert bytes(again.object.spec.config[0].opaque.parameters) == parameters
    assert again.object == decoded.object


def test_opaque_parameters_with_space_equal_those_without():
    assert codec.decode(device_class('{ "a" : [ 1 , 2 ] }')) == codec.decode(device_class('{"a":[1,2]}'))


UNREADABLE = {
    "surrogate": rb'"\ud800"',
    "utf-8": b'"\xff"',
    "digits": b"1" * 5000,
    "exponent": b"1e99999999999999999999",
    "deep": b"[" * 200 + b"]" * 200,
}


@pytest.mark.parametrize("parameters", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("version", [b"v1", b"v1beta1"])
def test_opaque_parameters_that_could_not_be_written_again_are_refused(parameters, version):
    data = device_class('"@"').replace(b'"@"', parameters).replace(b"k8s.io/v1", b"k8s.io/" + version)
    with pytest.raises(DecodeError):
        codec.decode(data)


def test_null_parameters_are_not_given():
    decoded = codec.decode(device_class("null"))
    assert decoded.object.spec.config[0].opaque == OpaqueDeviceConfiguration(driver="gpu.example.com")
    assert codec.decode_document(json.loads(device_class("null"))).object == decoded.object


@pytest.mark.parametrize(
    "nulls", [{"adminAccess": None}, {"capacity": None}, {"adminAccess": None, "count": None}]
)
def test_null_stands_for_nothing_in_old_versions_too(nulls):
    with_null = {"devices": {"requests": [{"name": "a", **nulls}]}}
    for decoded in on_every_way(claim(with_null, "v1beta1")):
        assert decoded.object.spec.devices.requests[0].exactly is None


@pytest.mark.parametrize(
    ("first", "last", "kind", "version"),
    [
        (("resource.k8s.io/v1", "DeviceClass"), '"kind": "ResourceClaim"', "ResourceClaim", "v1"),
        (
            ("resource.k8s.io/v1", "ResourceClaim"),
            '"apiVersion": "resource.k8s.io/v1beta1"',
            "ResourceClaim",
            "v1beta1",
        ),
        (("resource.k8s.io/v1", "ResourceClaim"), '"apiVersion": "v1", "kind": "Pod"', "Pod", "v1"),
    ],
)
def test_the_last_of_duplicate_kinds_counts(first, last, kind, version):
    api_version, name = first
    text = f'{{"apiVersion": "{api_version}", "kind": "{name}", "metadata": {{"name": "x"}}, {last}}}'
    decoded = codec.decode(text.encode())
    assert (decoded.kind.name, decoded.version) == (kind, version)
    assert decoded == codec.decode_document(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "DeviceClass", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": "x"}}',
        ' \n{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","metadata":{"name":"x"}}',
        '{"metadata": {"name": "x"}, "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}',
        '{"\\u0061piVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "x"}}',
        '{"apiVersion": "resource.k8s.io\\/v1", "kind": "DeviceClass", "metadata": {"name": "x"}}',
    ],
)
def test_apiversion_and_kind_may_stand_anywhere(text):
    assert codec.decode(text.encode()).object == DeviceClass(metadata=ObjectMeta(name="x"))


def test_an_empty_exact_request_survives_the_old_version():
    decoded = codec.decode_document(claim({"devices": {"requests": [{"name": "a", "exactly": {}}]}}))
    assert codec.decode(codec.encode(decoded.object, "v1beta1")).object == decoded.object


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), Decimal("NaN"), {1: 2}, b"x", "\ud800"], ids=repr
)
@pytest.mark.parametrize("place", ["labels", "adminAccess", "parameters", "unknown", "managedFields"])
def test_what_json_cannot_hold_is_refused_wherever_it_stands(value, place):
    exactly: dict[str, Any] = {"adminAccess": value} if place == "adminAccess" else {}
    opaque = {"driver": "d", "parameters": value if place == "parameters" else {}}
    document = claim({"devices": {"requests": [{"exactly": exactly}], "config": [{"opaque": opaque}]}})
    if place == "labels":
        document["metadata"]["labels"] = {"a": value}
    if place == "unknown":
        document["unknown"] = value
    if place == "managedFields":
        document["metadata"]["managedFields"] = [{"a": value}]
    with pytest.raises(DecodeError) as refused:
        codec.decode_document(document)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("document", [None, [], "x", 1, True, b"{}"])
def test_a_document_is_an_object(document):
    with pytest.raises(DecodeError, match="expected an object with `apiVersion` and `kind`"):
        codec.decode_document(document)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b'"x"', b"{", b"\xff", b'{"apiVersion": 1, "kind": {}}']
)
def test_bytes_that_are_no_object_are_a_decode_error(data):
    with pytest.raises(DecodeError):
        codec.decode(data)


def test_an_open_object_keeps_its_document_and_the_projection_reads_it():
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": ["gpu"]}}],
            "hostPID": True,
        },
    }
    for decoded in on_every_way(document):
        assert decoded.document == document
        assert decoded.unknown_fields == ()
        assert decoded.object.spec.containers[0].resources.claims[0].name == "gpu"


def test_a_class_decodes_to_its_own_type():
    assert isinstance(codec.decode(device_class("{}")).object, DeviceClass)
