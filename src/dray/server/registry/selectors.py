"""Which objects a list or watch chooses: by labels, and by the few fields that can be asked for.

Theory of operation: fields are read straight from the stored bytes by a decoder that knows just the fields of
the question and skips everything else, so that choosing among thousands of slices does not parse them.
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
from dray.values.label_selectors import LabelSelectorError, ParsedLabelSelector

_EVENT_OBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

SELECTABLE_FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("", "Pod"): (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        ("", "Node"): ("spec.unschedulable",),
        ("", "Namespace"): ("status.phase",),
        ("", "Secret"): ("type",),
        ("", "Event"): (
            *(f"involvedObject.{name}" for name in _EVENT_OBJECT),
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        ("resource.k8s.io", "ResourceSlice"): ("spec.nodeName", "spec.driver"),
        ("dray.dev", "Preparation"): ("spec.nodeName", "spec.claim.uid"),
        ("certificates.k8s.io", "ClusterTrustBundle"): ("spec.signerName",),
        ("certificates.k8s.io", "CertificateSigningRequest"): ("spec.signerName",),
    }
)
"""The fields each kind can be chosen by, besides `metadata.name` and `metadata.namespace`."""

_EVENT_FIELD_ALIASES: Mapping[str, str] = MappingProxyType(
    {f"regarding.{name}": f"involvedObject.{name}" for name in _EVENT_OBJECT}
    | {"reportingController": "reportingComponent"}
)
"""How `events.k8s.io` calls the fields of core events."""


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A field that must, or must not, have a value."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class ListSelector:
    """What a list or watch asks for."""

    labels: ParsedLabelSelector
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        return not self.labels.requirements and not self.fields

    def get_exact_value(self, field: str) -> str | None:
        """The value a field must have, when the question is that exact."""
        return next((term.value for term in self.fields if term.field == field and term.equal), None)

    def matches(self, stored: StoredObject) -> bool:
        """Whether an object is chosen."""
        return self.matches_fields(stored.key, stored.value) and (
            not self.labels.requirements or self.labels.matches(stored.metadata.labels)
        )

    def matches_fields(self, key: bytes, value: bytes) -> bool:
        """Whether the fields of the object at a key are as they must be.

        Hundreds of nodes watch their own pods: most of what is asked here is not chosen, and quickly so.
        """
        return all((_read_field(term.field, key, value) == term.value) == term.equal for term in self.fields)


EVERYTHING = ListSelector(ParsedLabelSelector())


def parse_selectors(kind: Kind, query: Mapping[str, str]) -> ListSelector:
    """What the selectors in a query choose; raises a `Failure` that names the part it does not understand."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return EVERYTHING
    try:
        wanted = ParsedLabelSelector.parse(labels)
    except LabelSelectorError as wrong:
        raise new_bad_request(f'unable to parse requirement: labelSelector "{labels}": {wrong}') from None
    return ListSelector(wanted, _parse_field_selector(kind, fields))


def _parse_field_selector(kind: Kind, text: str) -> tuple[FieldRequirement, ...]:
    terms = []
    for part in filter(None, text.split(",")):
        for sign, equal in (("!=", False), ("==", True), ("=", True)):
            field, found, value = part.partition(sign)
            if found:
                terms.append(FieldRequirement(_resolve_field(kind, field.strip()), value.strip(), equal))
                break
        else:
            raise new_bad_request(
                f'invalid field selector "{text}": expected for example `metadata.name=value`, got `{part}`'
            )
    return tuple(terms)


def _resolve_field(kind: Kind, field: str) -> str:
    kept = get_storage_kind(kind)
    name = _EVENT_FIELD_ALIASES.get(field, field) if kept is not kind else field
    supported = ("metadata.name", "metadata.namespace", *SELECTABLE_FIELDS.get((kept.group, kept.name), ()))
    if name not in supported:
        known = ", ".join(supported if kept.namespaced else supported[:1] + supported[2:])
        raise new_bad_request(f'"{field}" is not a known field selector: only {known}')
    return name


class _FieldReader:
    """Reads a few fields of an object from its bytes."""

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
            # Nobody looked into it when it was written, and one strange object must not hide all others.
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
    """The same in an object of any form: what is not where it should be is not there."""
    for step in steps:
        node = node.get(step) if isinstance(node, dict) else None
    return _to_text(node)


def _to_text(node: Any) -> str:
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, dict):  # `source` of an event stands for its component
        node = node.get("component")
    return "" if node is None else str(node)


@lru_cache(maxsize=256)
def _get_reader(field: str) -> _FieldReader:
    return _FieldReader((field,))


def _read_field(field: str, key: bytes, value: bytes) -> str:
    """What a field says; two of them stand in the key."""
    if field == "metadata.name":
        return key.rpartition(b"/")[2].decode()
    return parse_namespace(key) if field == "metadata.namespace" else _read_value(field, value)


# Each watcher asks the same of the same bytes, which know their own hash.
@lru_cache(maxsize=1024)
def _read_value(field: str, value: bytes) -> str:
    return _get_reader(field).read(value)[field]
