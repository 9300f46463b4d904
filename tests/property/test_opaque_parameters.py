"""Opaque parameters reach the driver as they were written, through every version, with every digit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from dray.api import codec
from dray.api.json_text import read_json, write_json
from tests.property.strategies.api import json_values

PARAMETERS = "@"
DEVICES = {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": PARAMETERS}}]}
ALLOCATION = {"devices": {"results": [], **DEVICES}}
RESOURCE = ["v1", "v1beta2", "v1beta1"]
PLACES: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "class": ("resource.k8s.io", "DeviceClass", {"spec": DEVICES}, RESOURCE),
    "claim": ("resource.k8s.io", "ResourceClaim", {"spec": {"devices": DEVICES}}, RESOURCE),
    "template": (
        "resource.k8s.io",
        "ResourceClaimTemplate",
        {"spec": {"spec": {"devices": DEVICES}}},
        RESOURCE,
    ),
    "allocation": ("resource.k8s.io", "ResourceClaim", {"status": {"allocation": ALLOCATION}}, RESOURCE),
    "status": ("resource.k8s.io", "ResourceClaim", {"status": {"devices": [{"data": PARAMETERS}]}}, RESOURCE),
    "classic class": ("cdi.k8s.io", "ResourceClass", {"parameters": PARAMETERS}, ["v1alpha1"]),
    "classic claim": ("cdi.k8s.io", "ResourceClaim", {"spec": {"parameters": PARAMETERS}}, ["v1alpha1"]),
}


@pytest.mark.req("K3063-027")
@pytest.mark.parametrize("place", PLACES)
@given(value=json_values.filter(lambda value: value is not None))
def test_parameters_keep_their_meaning(place, value):
    group, kind, parts, served = PLACES[place]
    for written in served:
        document = {"apiVersion": f"{group}/{written}", "kind": kind, "metadata": {"name": "x"}, **parts}
        given_document = _filled(document, value)
        for version in served:
            for decoded in (codec.decode(write_json(given_document)), codec.decode_document(given_document)):
                out = read_json(codec.encode(decoded.object, version))
                assert _texts(_found(out)) == [write_json(value)]


def _filled(document: Any, value: Any) -> Any:
    if document == PARAMETERS:
        return value
    if isinstance(document, dict):
        return {name: _filled(item, value) for name, item in document.items()}
    return [_filled(item, value) for item in document] if isinstance(document, list) else document


def _found(document: Any) -> list[Any]:
    """The values of the fields that are opaque, wherever they stand."""
    found: list[Any] = []
    if isinstance(document, dict):
        for name, item in document.items():
            found += [item] if name in ("parameters", "data") else _found(item)
    elif isinstance(document, list):
        for item in document:
            found += _found(item)
    return found


def _texts(values: list[Any]) -> list[bytes]:
    """Values as text: two numbers with the same digits, not only of the same size."""
    return [write_json(value) for value in values]
