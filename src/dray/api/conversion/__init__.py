"""Conversion between wire versions and the internal version: documents in, documents out.

The internal version is the first version of a kind's row. `v1beta2` differs only in its name; `v1beta1` nests
devices under `basic` and has the fields of `exactly` directly in a request. This package validates nothing
and applies no defaults. The codec, the API server, lint and commands that convert files import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dray.api.conversion import legacy_pods, v1beta1
from dray.api.json_text import Document
from dray.api.kinds import Kind

_TO_INTERNAL: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = MappingProxyType(
    {
        ("ResourceClaim", "v1beta1"): v1beta1.convert_claim_to_internal,
        ("ResourceClaimTemplate", "v1beta1"): v1beta1.convert_template_to_internal,
        ("ResourceSlice", "v1beta1"): v1beta1.convert_slice_to_internal,
    }
)
_FROM_INTERNAL: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = MappingProxyType(
    {
        ("ResourceClaim", "v1beta1"): v1beta1.convert_claim_from_internal,
        ("ResourceClaimTemplate", "v1beta1"): v1beta1.convert_template_from_internal,
        ("ResourceSlice", "v1beta1"): v1beta1.convert_slice_from_internal,
    }
)


def convert_to_internal(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """Convert a document of an older version to the internal version."""
    rewrite = _TO_INTERNAL.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.internal_api_version}


def convert_from_internal(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """Convert a document of the internal version to another version."""
    rewrite = _FROM_INTERNAL.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.format_api_version(version)}


def normalize_document(kind: Kind, document: Document) -> Document:
    """Convert the spellings of KEP-3063 in a pod to the current ones."""
    return legacy_pods.normalize_pod(document) if kind.name == "Pod" else document


def get_struct_type(kind: Kind, version: str) -> type:
    """Return the struct type that a document of this version must fit."""
    return v1beta1.STRUCT_TYPES.get(kind.name, kind.type) if version == "v1beta1" else kind.type


def translate_path(kind: Kind, version: str, path: str) -> str:
    """Return the path in this version of a field of the internal version."""
    return v1beta1.translate_path(kind.name, path) if version == "v1beta1" else path
