"""Semantic equality: whether two values mean the same.

Equality of structs is almost it: quantities already compare by value. The difference are opaque parameters,
which are stored as written; `{"a": 1}` with other white space or another order of keys is no change.
"""

from __future__ import annotations

from typing import Any

import msgspec


def is_semantically_equal(new: Any, old: Any) -> bool:
    """Whether two values of one type mean the same."""
    if new == old:
        return True
    if type(new) is not type(old):
        return False
    if isinstance(new, msgspec.Raw):
        return _normalize_json(new) == _normalize_json(old)
    if isinstance(new, msgspec.Struct):
        return all(
            is_semantically_equal(getattr(new, name), getattr(old, name)) for name in new.__struct_fields__
        )
    if isinstance(new, tuple):
        return len(new) == len(old) and all(map(is_semantically_equal, new, old))
    if isinstance(new, dict):
        return new.keys() == old.keys() and all(
            is_semantically_equal(value, old[key]) for key, value in new.items()
        )
    return False


def _normalize_json(raw: msgspec.Raw) -> bytes:
    """Return opaque JSON in a normal form: sorted keys, no white space. Invalid JSON is returned as it is."""
    written = bytes(raw)
    try:
        return msgspec.json.encode(msgspec.json.decode(written), order="deterministic")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return written
