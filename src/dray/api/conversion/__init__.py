"""Older wire versions, brought to the internal form and back: dict to dict, nothing else.

The internal form is the first version of a kind's row. `v1beta2` differs only in its name; `v1beta1`
nests devices under `basic` and spreads requests flat. Only codec and the doors import this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dray.api.conversion import legacy_pods, v1beta1
from dray.api.kinds import Kind

Document = Mapping[str, Any]

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
    """A document of an older version in the internal form."""
    rewrite = _TO_INTERNAL.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.internal_api_version}


def convert_from_internal(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """A document of the internal form in another version."""
    rewrite = _FROM_INTERNAL.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.format_api_version(version)}


def normalize_document(kind: Kind, document: Document) -> Document:
    """A document with the spellings of the specification's first pods brought to today's."""
    return legacy_pods.normalize_pod(document) if kind.name == "Pod" else document


def get_struct_type(kind: Kind, version: str) -> type:
    """The type a document of this version must fit."""
    return v1beta1.STRUCT_TYPES.get(kind.name, kind.type) if version == "v1beta1" else kind.type


def translate_path(kind: Kind, version: str, path: str) -> str:
    """Where a field of the internal form stands in a document of this version."""
    return v1beta1.translate_path(kind.name, path) if version == "v1beta1" else path
