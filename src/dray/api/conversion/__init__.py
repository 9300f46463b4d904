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

_UP: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = MappingProxyType(
    {
        ("ResourceClaim", "v1beta1"): v1beta1.claim_up,
        ("ResourceClaimTemplate", "v1beta1"): v1beta1.template_up,
        ("ResourceSlice", "v1beta1"): v1beta1.slice_up,
    }
)
_DOWN: Mapping[tuple[str, str], Callable[[Document], dict[str, Any]]] = MappingProxyType(
    {
        ("ResourceClaim", "v1beta1"): v1beta1.claim_down,
        ("ResourceClaimTemplate", "v1beta1"): v1beta1.template_down,
        ("ResourceSlice", "v1beta1"): v1beta1.slice_down,
    }
)


def up(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """A document of an older version in the internal form."""
    rewrite = _UP.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.internal_api_version}


def down(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """A document of the internal form in another version."""
    rewrite = _DOWN.get((kind.name, version), dict)
    return {**rewrite(document), "apiVersion": kind.api_version(version)}


def tidied(kind: Kind, document: Document) -> Document:
    """A document with the spellings of the specification's first pods brought to today's."""
    return legacy_pods.tidied(document) if kind.name == "Pod" else document


def shape_of(kind: Kind, version: str) -> type:
    """The type a document of this version must fit."""
    return v1beta1.SHAPES.get(kind.name, kind.type) if version == "v1beta1" else kind.type


def place_in(kind: Kind, version: str, path: str) -> str:
    """Where a field of the internal form stands in a document of this version."""
    return v1beta1.place(kind.name, path) if version == "v1beta1" else path
