"""The structs against the OpenAPI document of a Kubernetes server: every difference is listed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.api.decode_report import list_field_names
from dray.api.kinds import KINDS
from tests.fieldtree import fields_of

RESOURCE = "io.k8s.api.resource.v1."
PREFIXES = (RESOURCE, "io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1.")
RENAMED = {"ConsumerReference": "ResourceClaimConsumerReference", "OwnerRef": "OwnerReference"}

NOT_BUILT = {
    "Device.nodeAllocatableResources": "DRANodeAllocatableResources",
    "DeviceClassSpec.extendedResourceName": "DRAExtendedResource",
    "DeviceCounterConsumption.compatibilityGroups": "DRADeviceCompatibilityGroups",
    "DeviceRequestAllocationResult.skipNodeOperations": "DRAOptionalNodeOperations",
    "DeviceSubRequest.derivedAttributes": "DRADerivedAttributes",
    "ExactDeviceRequest.derivedAttributes": "DRADerivedAttributes",
    "ResourceSliceSpec.partitionTypeAttribute": "DRAPartitionableDevicesType",
    "ResourceSliceSpec.skipNodeOperations": "DRAOptionalNodeOperations",
}
"""Fields of Kubernetes behind gates that dray does not have yet, with the feature they belong to."""

OURS_ALONE = {
    "DeviceAttribute.list": "KEP-5491 spells lists this way; Kubernetes has `ints`, `strings` ...",
    "ResourcePool.priority": "KEP-5773",
    "ResourceSliceSpec.priority": "KEP-5773",
}
"""Fields of the specification that Kubernetes does not have."""


@pytest.fixture(scope="module")
def schemas(corpus) -> dict[str, set[str]]:
    recorded = corpus.parent / "api-samples" / "openapi_v3_resource_v1.json"
    if not recorded.is_file():
        pytest.skip("no recorded OpenAPI document (api-samples) beside the corpus")
    found: dict[str, Any] = json.loads(recorded.read_bytes())["components"]["schemas"]
    return {
        name.removeprefix(prefix): set(schema.get("properties", ()))
        for prefix in PREFIXES
        for name, schema in found.items()
        if name.startswith(prefix)
    }


def holders() -> dict[str, type]:
    """Our structs of `resource.k8s.io`, by the name Kubernetes gives them."""
    kinds = [kind for kind in KINDS if kind.group == "resource.k8s.io" and not kind.is_opaque]
    found = {field.holder for kind in kinds for field in fields_of(kind.type).values()}
    return {RENAMED.get(cls.__name__, cls.__name__): cls for cls in found}


def test_every_struct_exists_in_kubernetes_but_that_of_lists(schemas):
    assert holders().keys() - schemas.keys() == {"ListAttribute"}


def test_every_field_of_kubernetes_is_here_or_known_not_to_be_built(schemas):
    missing = {
        f"{name}.{field}"
        for name, cls in holders().items()
        for field in schemas.get(name, set()) - set(list_field_names(cls))
    }
    assert missing == NOT_BUILT.keys()


def test_every_field_of_ours_is_in_kubernetes_or_in_a_specification(schemas):
    extra = {
        f"{name}.{field}"
        for name, cls in holders().items()
        if name in schemas
        for field in set(list_field_names(cls)) - schemas[name]
    }
    assert extra == OURS_ALONE.keys()
