"""The table of kinds, and the kind of a document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dray.api import core
from dray.api.classic import ClassicClaimSpec, ClassicResourceClaim, ResourceClass
from dray.api.decode_report import list_field_names
from dray.api.kinds import (
    KINDS,
    Kind,
    UnknownKindError,
    find_kind,
    get_kind_by_type,
    parse_document_kind,
    split_api_version,
)
from dray.api.resource import ResourceClaim
from dray.errors import DecodeError


def test_no_kind_stands_in_the_table_twice():
    assert len({(kind.group, kind.name) for kind in KINDS}) == len(KINDS)
    assert len({(kind.group, kind.plural) for kind in KINDS}) == len(KINDS)


def test_what_is_served():
    assert {
        kind.qualified_name: kind.versions
        for kind in KINDS
        if kind.group.endswith(("resource.k8s.io", "cdi.k8s.io")) and not kind.is_opaque
    } == {
        "DeviceClass.resource.k8s.io": ("v1", "v1beta2", "v1beta1"),
        "ResourceClaim.resource.k8s.io": ("v1", "v1beta2", "v1beta1"),
        "ResourceClaimTemplate.resource.k8s.io": ("v1", "v1beta2", "v1beta1"),
        "ResourceSlice.resource.k8s.io": ("v1", "v1beta2", "v1beta1"),
        "DeviceTaintRule.resource.k8s.io": ("v1", "v1beta2"),
        "ResourceClass.cdi.k8s.io": ("v1alpha1",),
        "ResourceClaim.cdi.k8s.io": ("v1alpha1",),
    }


@pytest.mark.req("K3063-057", "K3063-023", "K3063-026")
def test_the_classic_kinds_are_built_in():
    resource_class, claim = (
        find_kind("cdi.k8s.io", "ResourceClass"),
        find_kind("cdi.k8s.io", "ResourceClaim"),
    )
    assert resource_class is not None
    assert claim is not None
    assert (resource_class.type, resource_class.namespaced) == (ResourceClass, False)
    assert (claim.type, claim.namespaced, claim.subresources) == (ClassicResourceClaim, True, ("status",))
    assert set(ResourceClass.__struct_fields__) == {
        "api_version",
        "kind",
        "metadata",
        "driver_name",
        "parameters",
    }
    assert set(ClassicResourceClaim.__struct_fields__) == {
        "api_version",
        "kind",
        "metadata",
        "spec",
        "status",
    }
    assert list_field_names(ClassicClaimSpec) == ("resourceClassName", "parameters", "allocationMode")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.qualified_name)
def test_a_kind_is_found_by_its_names(kind: Kind):
    assert find_kind(kind.group, kind.name) is kind
    for version in kind.versions:
        document = {"apiVersion": kind.format_api_version(version), "kind": kind.name}
        assert parse_document_kind(document) == (kind, version)
        assert split_api_version(kind.format_api_version(version)) == (kind.group, version)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if not kind.open], ids=lambda kind: kind.qualified_name
)
def test_a_closed_kind_is_found_by_its_struct(kind):
    assert get_kind_by_type(kind.type) is kind
    empty: Any = kind.type()
    assert (empty.api_version, empty.kind) == (kind.internal_api_version, kind.name)


def test_an_open_kind_has_no_row_by_struct():
    with pytest.raises(TypeError, match="Pod is not a closed kind"):
        get_kind_by_type(core.Pod)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "`apiVersion` is missing; expected for example `resource.k8s.io/v1`"),
        ({"apiVersion": "", "kind": "Pod"}, "`apiVersion` is missing"),
        ({"apiVersion": 1, "kind": "Pod"}, "`apiVersion` is missing"),
        ({"apiVersion": "v1"}, "`kind` is missing; expected for example `ResourceClaim`"),
        ({"apiVersion": "v1", "kind": []}, "`kind` is missing"),
        (
            {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim"},
            "ResourceClaim is not served in `resource.k8s.io/v1alpha3`; expected one of "
            "`resource.k8s.io/v1`, `resource.k8s.io/v1beta2`, `resource.k8s.io/v1beta1`",
        ),
        (
            {"apiVersion": "v1", "kind": "ResourceClaim"},
            "unknown kind `ResourceClaim` in `v1`; `ResourceClaim` is served in `resource.k8s.io/v1` "
            "and `cdi.k8s.io/v1alpha1`",
        ),
        (
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlices"},
            "unknown kind `ResourceSlices` in `resource.k8s.io/v1`; did you mean `ResourceSlice`?",
        ),
        ({"apiVersion": "example.com/v1", "kind": "Zebra"}, "unknown kind `Zebra` in `example.com/v1`"),
    ],
)
def test_a_document_of_an_unknown_kind_is_refused_with_a_hint(document, message):
    with pytest.raises(DecodeError) as refused:
        parse_document_kind(document)
    assert str(refused.value).startswith(message)
    problem, _, hint = str(refused.value).partition("; ")
    assert isinstance(refused.value, UnknownKindError)
    assert (refused.value.problem, refused.value.hint) == (problem, hint)


def test_the_table_agrees_with_the_discovery_of_kubernetes(corpus):
    recorded = corpus.parent / "api-samples" / "apiresourcelist_resource_v1.json"
    if not recorded.is_file():
        pytest.skip("no recorded discovery document (api-samples) beside the corpus")
    listed = {entry["name"]: entry for entry in json.loads(recorded.read_bytes())["resources"]}
    ours = [kind for kind in KINDS if kind.group == "resource.k8s.io"]
    for kind in ours:
        entry = listed[kind.plural]
        assert (entry["kind"], entry["namespaced"]) == (kind.name, kind.namespaced)
        assert tuple(entry.get("shortNames", ())) == kind.short_names
        subresources = {name.partition("/")[2] for name in listed if name.startswith(f"{kind.plural}/")}
        assert set(kind.subresources) <= subresources


def test_a_kind_has_its_qualified_and_short_names():
    kind = get_kind_by_type(ResourceClaim)
    assert isinstance(kind, Kind)
    assert (kind.version, kind.internal_api_version) == ("v1", "resource.k8s.io/v1")
    assert kind.qualified_name == "ResourceClaim.resource.k8s.io"
    pod = find_kind("", "Pod")
    assert pod is not None
    assert (pod.internal_api_version, pod.qualified_name) == ("v1", "Pod")
