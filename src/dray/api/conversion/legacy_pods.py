"""Conversion of pods in the spellings of KEP-3063: container claims as strings, inline templates without
`spec`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.core.pod import CONTAINER_LISTS
from dray.api.decode_report import list_field_names
from dray.api.json_text import Document

_SPEC_FIELDS = frozenset(list_field_names(ClassicClaimSpec))


def normalize_pod(document: Document) -> Document:
    """Return the pod in current spellings; the same document when it already has them."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return document
    changed: dict[str, Any] = {}
    for name, tidy in _NORMALIZERS.items():
        given = spec.get(name)
        if given and _is_list(given):
            made = [tidy(entry) for entry in given]
            if not all(map(operator.is_, made, given)):
                changed[name] = made
    return {**document, "spec": {**spec, **changed}} if changed else document


def _normalize_container(container: Any) -> Any:
    resources: Any = container.get("resources") if isinstance(container, Mapping) else None
    claims: Any = resources.get("claims") if isinstance(resources, Mapping) else None
    if not _is_list(claims) or not any(isinstance(claim, str) for claim in claims):
        return container
    named = [{"name": claim} if isinstance(claim, str) else claim for claim in claims]
    return {**container, "resources": {**resources, "claims": named}}


def _normalize_claim(entry: Any) -> Any:
    template = entry.get("template") if isinstance(entry, Mapping) else None
    if not isinstance(template, Mapping) or "spec" in template or not _SPEC_FIELDS & template.keys():
        return entry
    spec = {name: value for name, value in template.items() if name in _SPEC_FIELDS}
    rest = {name: value for name, value in template.items() if name not in _SPEC_FIELDS}
    return {**entry, "template": {**rest, "spec": spec}}


_NORMALIZERS = {**dict.fromkeys(CONTAINER_LISTS, _normalize_container), "resourceClaims": _normalize_claim}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
