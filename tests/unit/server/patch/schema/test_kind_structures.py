"""Structures of lists and maps, compared with what Kubernetes publishes."""

from __future__ import annotations

import pytest

from dray.api.kinds import KINDS
from dray.server.patch.schema.field_structure import ANY, Structure
from dray.server.patch.schema.kind_structures import STRUCTURES, get_structure
from tests.unit.server.patch.kinds import CLAIM, NODE, POD, SERVICE
from tests.unit.server.samples import sample


def place(kind, path):
    structure = get_structure(kind)
    for name in path.split("."):
        structure = structure.element if name == "[]" else structure.get_field(name)
    return structure


def facts(kind, path):
    structure = place(kind, path)
    return structure.list_type, structure.map_keys, structure.merge_key, structure.strategy


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (POD, "spec.containers", ("map", ("name",), "name", ("merge",))),
        (
            POD,
            "spec.containers.[].ports",
            ("map", ("containerPort", "protocol"), "containerPort", ("merge",)),
        ),
        (POD, "spec.volumes", ("map", ("name",), "name", ("merge", "retainKeys"))),
        (POD, "spec.tolerations", ("atomic", (), "", ())),
        (POD, "spec.containers.[].resources.claims", ("map", ("name",), "", ())),
        (POD, "status.hostIPs", ("atomic", (), "ip", ("merge",))),
        (POD, "metadata.ownerReferences", ("map", ("uid",), "uid", ("merge",))),
        (POD, "metadata.finalizers", ("set", (), "", ("merge",))),
        (NODE, "spec.podCIDRs", ("set", (), "", ("merge",))),
        (NODE, "spec.taints", ("atomic", (), "", ())),
        (SERVICE, "spec.ports", ("map", ("port", "protocol"), "port", ("merge",))),
        (CLAIM, "status.devices", ("map", ("device", "driver", "pool", "shareID"), "", ())),
        (CLAIM, "spec.devices.requests", ("atomic", (), "", ())),
        (CLAIM, "something.nobody.knows", ("atomic", (), "", ())),
    ],
)
def test_lists_have_the_types_of_kubernetes(kind, path, expected):
    assert facts(kind, path) == expected


def test_what_is_owned_as_one():
    assert place(POD, "spec.nodeSelector").map_type == "atomic"
    assert place(POD, "metadata.ownerReferences.[]").map_type == "atomic"
    assert place(POD, "metadata.labels").map_type == "granular"
    assert place(SERVICE, "spec.ports").key_defaults == {"protocol": "TCP"}


def test_every_row_is_a_kind_we_serve():
    assert set(STRUCTURES) == {(kind.group, kind.name) for kind in KINDS}


def test_every_kind_has_metadata():
    for kind in KINDS:
        assert get_structure(kind).get_field("metadata").get_field("finalizers").list_type == "set", kind


def resolved(schemas, schema):
    while True:
        (ref,) = [part["$ref"] for part in schema.get("allOf", [])] or [schema.get("$ref")]
        if ref is None:
            return schema
        schema = schemas[ref.rpartition("/")[2]]


def differences(schemas, schema, structure: Structure, path):
    """List where a structure differs from a schema."""
    target = resolved(schemas, schema)
    if target.get("type") == "array":
        said = {
            "list_type": schema.get("x-kubernetes-list-type", "atomic"),
            "map_keys": tuple(sorted(schema.get("x-kubernetes-list-map-keys", ()))),
            "merge_key": schema.get("x-kubernetes-patch-merge-key", ""),
            "strategy": tuple(filter(None, schema.get("x-kubernetes-patch-strategy", "").split(","))),
        }
        held = {name: getattr(structure, name) for name in said}
        if said != held:
            yield path, said, held
        yield from differences(schemas, target["items"], structure.element, path + "[]")
        return
    atomic = target.get("x-kubernetes-map-type") == "atomic"
    if atomic != structure.atomic:
        yield path, f"atomic is {atomic}", structure
    for name, below in target.get("properties", {}).items():
        yield from differences(schemas, below, structure.get_field(name), f"{path}.{name}")
        if (below.get("default") == {}) != structure.get_field(name).always_present:
            yield f"{path}.{name}", f"default is {below.get('default')}", "always"
    if isinstance(target.get("additionalProperties"), dict):
        yield from differences(schemas, target["additionalProperties"], structure.get_field("x"), path + "{}")


@pytest.mark.parametrize(
    "name", ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"]
)
def test_the_device_kinds_are_as_published(pytestconfig, name):
    schemas = sample(pytestconfig, "openapi_v3_resource_v1.json")["components"]["schemas"]
    schema = schemas[f"io.k8s.api.resource.v1.{name}"]
    structure = STRUCTURES["resource.k8s.io", name]
    assert schema["properties"], "an empty schema would agree with everything"
    assert list(differences(schemas, schema, structure, "")) == []


def test_fields_below_an_unknown_field_are_unknown():
    assert ANY.get_field("x") is ANY
    assert ANY.element is ANY
