"""JSON merge patch (RFC 7386): maps are merged, `null` removes, everything else replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.server.patch.errors import build_malformed
from dray.server.patch.limits import check_depth

Document = dict[str, Any]


def apply(document: Mapping[str, Any], patch: Any, *, shallow: bool = False) -> Document:
    """Apply a patch; parts that did not change are shared with the old document.

    The depth of a patch that is known to be `shallow` is not checked.
    """
    if not isinstance(patch, dict):
        raise build_malformed("a merge patch is a JSON object; for a list of operations use JSON patch")
    if not shallow:
        check_depth(patch)
    return _merge_value(document, patch)


def _merge_value(target: Any, patch: Document) -> Document:
    merged: Document = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merge_value(merged.get(name), value)
        else:
            merged[name] = value
    return merged
