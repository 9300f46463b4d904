"""Validation of references from a container or volume to fields of its pod and to resources of containers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dray.api.fields import FieldPath, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import Document, find_quantity, get_text
from dray.values.names import check_qualified_name


@dataclass(frozen=True, slots=True)
class FieldReferences:
    """The fields of a pod that a reference may name."""

    paths: tuple[str, ...]


VARIABLE_FIELDS: Final = FieldReferences(
    (
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
VOLUME_FIELDS: Final = FieldReferences(
    ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
)
_SUBSCRIPTED: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {"metadata.annotations": str.lower, "metadata.labels": str}
)
"""The maps of which a reference may name one entry, and how its key is read."""
_KNOWN_FIELDS: Final = frozenset(
    {*VARIABLE_FIELDS.paths, *VOLUME_FIELDS.paths, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
_OLD_NAMES: Final[Mapping[str, str]] = MappingProxyType({"spec.host": "spec.nodeName"})
_SUBSCRIPT = re.compile(r"(?P<path>.+?)\['(?P<key>.*)'\]", re.DOTALL)


def validate_field_reference(reference: Document, fields: FieldReferences, path: FieldPath) -> FieldErrors:
    """Check a `fieldRef`: a field of the pod, or one label or annotation of it."""
    text = get_text(reference, "fieldPath")
    place = path.child("fieldPath")
    if not text:
        yield required(place)
        return
    entry = _SUBSCRIPT.fullmatch(text)
    name = entry["path"] if entry else _OLD_NAMES.get(text, text)
    known = name in _SUBSCRIPTED if entry else name in _KNOWN_FIELDS
    if not known or get_text(reference, "apiVersion") not in ("", "v1"):
        yield invalid(place, text, "is no field of a pod that can be referred to")
    elif entry:
        yield from report_name_faults(check_qualified_name(_SUBSCRIPTED[name](entry["key"])), path)
    elif name not in fields.paths:
        yield not_supported(place, name, fields.paths)


_RESOURCES: Final = tuple(
    f"{list_name}.{resource}"
    for list_name in ("limits", "requests")
    for resource in ("cpu", "ephemeral-storage", "memory")
)
_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS: Final = ("1", "1m")
_DIVISORS: Final = ("1", *(f"1{unit}" for unit in ("k", *"MGTPE")), *(f"1{unit}i" for unit in "KMGTPE"))


def validate_resource_reference(
    reference: Document, path: FieldPath, *, in_volume: bool = False
) -> FieldErrors:
    """Check a `resourceFieldRef`; in a volume it names the container, too."""
    resource = get_text(reference, "resource")
    if in_volume and not get_text(reference, "containerName"):
        yield required(path.child("containerName"))
    elif not resource:
        yield required(path.child("resource"))
    elif resource not in _RESOURCES and not resource.startswith(_PAGES):
        yield not_supported(path.child("resource"), resource, _RESOURCES)
    divisor = find_quantity(reference, "divisor")
    if divisor is None or not divisor.nanos:
        return
    if resource in _RESOURCES or resource.startswith(_PAGES):
        supported = _CPU_DIVISORS if resource.endswith(".cpu") else _DIVISORS
        if str(divisor) not in supported:
            yield invalid(path.child("divisor"), resource, f"must be one of {', '.join(supported)}")
