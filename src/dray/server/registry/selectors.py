"""Label and field selectors of lists and watches.

Theory of operation: fields are read from the stored bytes by a decoder that knows only the selected field and
skips everything else, so that selecting among thousands of slices does not decode them. The strategy of a
kind says which fields can be selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api.json_text import read_json
from dray.api.kinds import Kind
from dray.server.http.errors import new_bad_request
from dray.server.objects.stored_object import StoredObject, get_storage_kind, parse_namespace
from dray.server.registry.strategies import INVOLVED_OBJECT_FIELDS, get_strategy
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector

_EVENT_FIELD_ALIASES: Mapping[str, str] = MappingProxyType(
    {f"regarding.{name}": f"involvedObject.{name}" for name in INVOLVED_OBJECT_FIELDS}
    | {"reportingController": "reportingComponent"}
)
"""Fields of core events by their names in `events.k8s.io`."""


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A field that must, or must not, have a value."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class ListSelector:
    """The label and field selector of a list or watch."""

    labels: ParsedLabelSelector
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        return not self.labels.requirements and not self.fields

    def get_exact_value(self, field: str) -> str | None:
        """The value that the selector requires of a field, if it requires exactly one."""
        return next((each.value for each in self.fields if each.field == field and each.equal), None)

    def matches(self, stored: StoredObject) -> bool:
        """Whether the selector matches an object."""
        return self.matches_fields(stored.key, stored.value) and (
            not self.labels.requirements or self.labels.matches(stored.metadata.labels)
        )

    def matches_fields(self, key: bytes, value: bytes) -> bool:
        """Whether the field selector matches the object with this key and value.

        Hundreds of nodes watch their own pods, so most objects do not match, and this must be quick.
        """
        return all((_read_field(each.field, key, value) == each.value) == each.equal for each in self.fields)


EVERYTHING = ListSelector(ParsedLabelSelector())


def parse_selectors(kind: Kind, query: Mapping[str, str]) -> ListSelector:
    """Parse the selectors of a query; raises an `ApiStatusError` that names the part it cannot parse."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return EVERYTHING
    try:
        label_selector = ParsedLabelSelector.parse(labels)
    except LabelSelectorError as error:
        raise new_bad_request(f'unable to parse requirement: labelSelector "{labels}": {error}') from None
    return ListSelector(label_selector, _parse_field_selector(kind, fields))


def _parse_field_selector(kind: Kind, text: str) -> tuple[FieldRequirement, ...]:
    requirements = []
    for part in filter(None, text.split(",")):
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            field, found, value = part.partition(operator)
            if found:
                name = _resolve_field(kind, field.strip())
                requirements.append(FieldRequirement(name, value.strip(), equal))
                break
        else:
            raise new_bad_request(
                f'invalid field selector "{text}": expected for example `metadata.name=value`, got `{part}`'
            )
    return tuple(requirements)


def _resolve_field(kind: Kind, field: str) -> str:
    name = _EVENT_FIELD_ALIASES.get(field, field) if get_storage_kind(kind) is not kind else field
    supported = ("metadata.name", "metadata.namespace", *get_strategy(kind).selectable_fields)
    if name not in supported:
        known = ", ".join(supported if kind.namespaced else supported[:1] + supported[2:])
        raise new_bad_request(f'"{field}" is not a known field selector: only {known}')
    return name


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


def _read_field(field: str, key: bytes, value: bytes) -> str:
    """The value of a field as text; name and namespace are read from the key."""
    if field == "metadata.name":
        return key.rpartition(b"/")[2].decode()
    return parse_namespace(key) if field == "metadata.namespace" else _read_value(field, value)


# All watchers read the same fields of the same bytes, and bytes cache their hash.
@lru_cache(maxsize=1024)
def _read_value(field: str, value: bytes) -> str:
    return _get_reader(field).read(value)[field]
