"""Values of selectable fields, read from the bytes of stored objects.

Theory of operation: a decoder knows only the selected field and skips everything else, so that selecting
among thousands of slices does not decode them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dray.api.json_text import read_json
from dray.server.objects.stored_object import parse_namespace


class _FieldReader:
    """Reads fields of an object from its bytes."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._steps = {field: field.split(".") for field in fields}
        tree: dict[str, Any] = {}
        for steps in self._steps.values():
            level = tree
            for step in steps:
                level = level.setdefault(step, {})
        self._decoder = msgspec.json.Decoder(_build_struct("Fields", tree))

    def read(self, value: bytes) -> dict[str, str]:
        try:
            top = self._decoder.decode(value)
        except msgspec.ValidationError:
            # Opaque kinds are not validated, and one malformed object must not hide all others.
            document = read_json(value)
            return {field: _read_document_path(document, steps) for field, steps in self._steps.items()}
        return {field: _read_struct_path(top, steps) for field, steps in self._steps.items()}


def _build_struct(name: str, tree: Mapping[str, Any]) -> type[msgspec.Struct]:
    fields = [
        (step, _build_struct(step, below) | None if below else Any, None) for step, below in tree.items()
    ]
    return msgspec.defstruct(name, fields)


def _read_struct_path(node: Any, steps: Sequence[str]) -> str:
    for step in steps:
        if node is None:
            break
        node = getattr(node, step)
    return _to_text(node)


def _read_document_path(node: Any, steps: Sequence[str]) -> str:
    """Read a field of a malformed object; empty when it is not where it should be."""
    for step in steps:
        node = node.get(step) if isinstance(node, dict) else None
    return _to_text(node)


def _to_text(node: Any) -> str:
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, dict):  # the selector `source` of events means `source.component`
        node = node.get("component")
    return "" if node is None else str(node)


@lru_cache(maxsize=256)
def _get_reader(field: str) -> _FieldReader:
    return _FieldReader((field,))


def read_field(field: str, key: bytes, value: bytes) -> str:
    """The value of a field as text; name and namespace are read from the key."""
    if field == "metadata.name":
        return key.rpartition(b"/")[2].decode()
    return parse_namespace(key) if field == "metadata.namespace" else _read_value(field, value)


# All watchers read the same fields of the same bytes, and bytes cache their hash.
@lru_cache(maxsize=1024)
def _read_value(field: str, value: bytes) -> str:
    return _get_reader(field).read(value)[field]
