"""Semantic equality of parts of a pod: whether a change of a document changes the pod.

Kubernetes knows no difference between an absent field and an empty text, list or map; neither does it for
fields that are false or 0 unless the field tells "not set" from that. Amounts are compared by value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.validation.pods.document_fields import find_quantity

_PLAIN_FIELDS: Final = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "readOnly",
        "hostPort",
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "partition",
        "lun",
        "chapAuthDiscovery",
        "chapAuthSession",
    }
)
"""Numbers and booleans whose zero value is the same as none."""

_AMOUNT_MAPS: Final = frozenset({"requests", "limits", "overhead"})
_AMOUNTS: Final = frozenset({"sizeLimit", "divisor"})


def is_same_document(new: Any, old: Any, field: str = "") -> bool:
    """Whether two values of a field mean the same."""
    if new is old or new == old:
        return True
    if isinstance(new, dict) and isinstance(old, dict):
        if field in _AMOUNT_MAPS:
            return new.keys() == old.keys() and all(_is_same_amount(new, old, name) for name in new)
        return all(is_same_document(new.get(name), old.get(name), name) for name in {*new, *old})
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(is_same_document, new, old))
    if field in _AMOUNTS and new and old:
        return _is_same_amount({field: new}, {field: old}, field)
    return _is_absent(new, field) and _is_absent(old, field)


def _is_absent(value: Any, field: str) -> bool:
    if isinstance(value, bool | int | float):
        return not value and field in _PLAIN_FIELDS
    return not value


def _is_same_amount(new: Mapping[str, Any], old: Mapping[str, Any], name: str) -> bool:
    amount = find_quantity(new, name)
    return amount is not None and amount == find_quantity(old, name)
