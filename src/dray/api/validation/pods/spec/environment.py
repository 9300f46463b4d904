"""Validation of environment variables, and of the references to fields and resources they are filled from.

References to fields are also used by downward API volumes, with other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dray.api.fields import FieldPath, invalid, not_found, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.field_references import (
    VARIABLE_FIELDS,
    validate_field_reference,
    validate_resource_reference,
)
from dray.api.validation.pods.value_rules import (
    validate_config_key,
    validate_path_without_backsteps,
    validate_variable_name,
)
from dray.values.names import check_dns_label, check_dns_subdomain

SourceRule: TypeAlias = Callable[[Document, FieldPath], FieldErrors]


def validate_environment(container: Document, path: FieldPath) -> FieldErrors:
    """Check the variables of a container."""
    if container.get("env"):
        place = path.child("env")
        for position, variable in iterate_objects(container, "env"):
            yield from _validate_variable(variable, place.index(position))
    if container.get("envFrom"):
        place = path.child("envFrom")
        for position, source in iterate_objects(container, "envFrom"):
            yield from _validate_variable_source(source, place, position)


def _validate_variable(variable: Document, path: FieldPath) -> FieldErrors:
    name = get_text(variable, "name")
    if not name:
        yield required(path.child("name"))
    elif not (name.isascii() and name.isidentifier()):
        yield from validate_variable_name(name, path.child("name"))
    source = find_mapping(variable, "valueFrom")
    if source is not None:
        yield from _validate_value_source(source, bool(get_text(variable, "value")), path.child("valueFrom"))


def _validate_value_source(source: Document, has_value: bool, path: FieldPath) -> FieldErrors:
    given = [name for name in _VALUE_SOURCES if find_mapping(source, name) is not None]
    for name in given:
        yield from _VALUE_SOURCES[name](source[name], path.child(name))
    if not given:
        known = ", ".join(f"`{name}`" for name in _VALUE_SOURCES)
        yield invalid(path, "", f"must have one of {known}")
    elif has_value:
        yield invalid(path, "", "may not be set when `value` is not empty")
    elif len(given) > 1:
        yield invalid(
            path, "", f"must have only one source, not {' and '.join(f'`{name}`' for name in given)}"
        )


# --- references to fields and other objects ---


def _validate_variable_field(reference: Document, path: FieldPath) -> FieldErrors:
    return validate_field_reference(reference, VARIABLE_FIELDS, path)


def _validate_key_reference(reference: Document, path: FieldPath) -> FieldErrors:
    yield from report_name_faults(check_dns_subdomain(get_text(reference, "name")), path.child("name"))
    key = get_text(reference, "key")
    if not key:
        yield required(path.child("key"))
    else:
        yield from validate_config_key(key, path.child("key"))


def _validate_file_reference(reference: Document, path: FieldPath) -> FieldErrors:
    rules: tuple[tuple[str, Callable[[str, FieldPath], FieldErrors]], ...] = (
        ("key", validate_variable_name),
        ("volumeName", lambda name, place: report_name_faults(check_dns_label(name), place)),
        ("path", validate_path_without_backsteps),
    )
    for name, rule in rules:
        value = get_text(reference, name)
        if not value:
            yield required(path.child(name))
        else:
            yield from rule(value, path.child(name))


_VALUE_SOURCES: Final[Mapping[str, SourceRule]] = MappingProxyType(
    {
        "fieldRef": _validate_variable_field,
        "resourceFieldRef": validate_resource_reference,
        "configMapKeyRef": _validate_key_reference,
        "secretKeyRef": _validate_key_reference,
        "fileKeyRef": _validate_file_reference,
    }
)
"""The sources of a value, in the order in which they are checked."""

_BULK_SOURCES: Final = ("configMapRef", "secretRef")


def _validate_variable_source(source: Document, path: FieldPath, position: int) -> FieldErrors:
    """Check an entry of `envFrom`; what is wrong with the whole entry is reported of the list."""
    place = path.index(position)
    prefix = get_text(source, "prefix")
    if prefix:
        yield from validate_variable_name(prefix, place.child("prefix"))
    given = [name for name in _BULK_SOURCES if find_mapping(source, name) is not None]
    for name in given:
        target, where = get_text(source[name], "name"), place.child(name, "name")
        if not target:
            yield required(where)
        else:
            yield from report_name_faults(check_dns_subdomain(target), where)
    if len(given) != 1:
        yield invalid(path, "", "must have exactly one of `configMapRef` and `secretRef`")


# --- files with variables ---


def validate_file_variables(
    containers: list[tuple[FieldPath, Document]], volumes: Mapping[str, Document]
) -> FieldErrors:
    """Check that files with variables are in volumes of the type `emptyDir`."""
    for path, container in containers:
        for position, variable in iterate_objects(container, "env"):
            source = find_mapping(variable, "valueFrom")
            reference = None if source is None else find_mapping(source, "fileKeyRef")
            if reference is None:
                continue
            name = get_text(reference, "volumeName")
            place = path.child("env").index(position).child("valueFrom", "fileKeyRef", "volumeName")
            if name not in volumes:
                yield not_found(place, name, tuple(volumes), "must be the name of a volume of the pod")
            elif find_mapping(volumes[name], "emptyDir") is None:
                yield invalid(place, name, "must be a volume of the type `emptyDir`")
