"""What an update is not blamed for: faults that the stored object already has.

Theory of operation: rules grow stricter over time, and objects stored before must stay changeable. So an
update is judged like a new object, and then every error that the stored object has as well is dropped.
Two errors are the same when fault, text and place agree, and the value complained about is unchanged. The
place follows an item of a list by its name (a device that moved is still the same device), or by its content
when it has no name. Sound objects never come here, so nothing of this costs them anything.

A rule that looks at two fields needs no care: when the other field changes, the stored object has no such
error, and the update is blamed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from dray.api.field_patterns import get_attribute_name
from dray.api.fields import FieldError, FieldErrorType

_STEP = re.compile(r"\.?([^.\[]+)|\[(.*?)\](?=[.\[]|$)", re.DOTALL)

# Faults of these kinds do not carry the value they are about.
_WITHOUT_VALUE = frozenset({FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG, FieldErrorType.TOO_MANY})


def filter_new_errors(
    found: Iterable[FieldError], new: Any, known: Iterable[FieldError], old: Any
) -> list[FieldError]:
    """The errors found in a new object that the old one, with its known errors, does not have."""
    excused = {_identify_error(error, old) for error in known}
    return [error for error in found if _identify_error(error, new) not in excused]


def _identify_error(error: FieldError, root: Any) -> Hashable:
    place: list[Hashable] = []
    node = root
    for field, key in _STEP.findall(error.path):
        try:
            node, step = _descend(node, field, key)
        except (LookupError, TypeError, ValueError):
            # Kubernetes names some places that no object has (`validRange.default`): stop at the one above.
            place.append(field or key)
            break
        place.append(step)
    value = node if error.type in _WITHOUT_VALUE else error.value
    return error.type, error.detail, tuple(place), _encode_content(value)


def _descend(node: Any, field: str, key: str) -> tuple[Any, Hashable]:
    """One step down, and what the step is called when positions do not count."""
    if isinstance(node, tuple) and key:
        item = node[int(key)]
        return item, getattr(item, "name", "") or _encode_content(item)
    if isinstance(node, dict):
        return node[field or key], field or key
    return getattr(node, get_attribute_name(type(node), field)), field


def _encode_content(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return repr(value).encode("utf-8", "replace")
