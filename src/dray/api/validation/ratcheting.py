"""Ratcheting validation: an update is not refused for errors that the stored object already has.

Theory of operation: rules become stricter over time, and objects stored before must stay changeable. So an
update is validated like a new object, and then every error that the stored object has as well is dropped. Two
errors are the same when type, text and path agree, and the invalid value is unchanged. The path follows an
item of a list by its name (a device that moved is still the same device), or by its content when it has no
name. Valid objects never get here, so this costs them nothing.

A rule that reads two fields needs no special case: when the other field changes, the stored object has no
such error, and the update is refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from dray.api.field_patterns import get_attribute_name
from dray.api.fields import FieldError, FieldErrorType

_STEP = re.compile(r"\.?([^.\[]+)|\[(.*?)\](?=[.\[]|$)", re.DOTALL)

# Errors of these types do not carry the invalid value.
_WITHOUT_VALUE = frozenset({FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG, FieldErrorType.TOO_MANY})


def filter_new_errors(
    found: Iterable[FieldError], new: Any, known: Iterable[FieldError], old: Any
) -> list[FieldError]:
    """Return the errors of a new object that the old one, with its known errors, does not have."""
    excused = {_identify_error(error, old) for error in known}
    return [error for error in found if _identify_error(error, new) not in excused]


def _identify_error(error: FieldError, root: Any) -> Hashable:
    place: list[Hashable] = []
    node = root
    for field, key in _STEP.findall(error.path):
        try:
            node, step = _descend(node, field, key)
        except (LookupError, TypeError, ValueError):
            # Kubernetes names some paths that no object has (`validRange.default`): stop at the parent.
            place.append(field or key)
            break
        place.append(step)
    value = node if error.type in _WITHOUT_VALUE else error.value
    return error.type, error.detail, tuple(place), _encode_content(value)


def _descend(node: Any, field: str, key: str) -> tuple[Any, Hashable]:
    """Go one step down; returns the value and the step, independent of positions."""
    if isinstance(node, tuple | list) and key:
        item = node[int(key)]
        name = item.get("name") if isinstance(item, dict) else getattr(item, "name", "")
        return item, (name if isinstance(name, str) else "") or _encode_content(item)
    if isinstance(node, dict):
        return node[field or key], field or key
    return getattr(node, get_attribute_name(type(node), field)), field


def _encode_content(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return repr(value).encode("utf-8", "replace")
