"""Validation of Events: of the core group, and the stricter rules of `events.k8s.io`.

Documents have the fields of the core group, whichever group the client used; errors name them so, except for
the controller, whose name differs between the groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from dray.api.fields import ROOT, invalid, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults, validate_immutable
from dray.api.validation.pods.document_equality import is_same_document
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_mapping,
    get_number,
    get_text,
    is_set,
)
from dray.values.names import check_qualified_name, count_bytes

_MAX_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
)
_TYPES: Final = ("Normal", "Warning")
_CONTROLLER: Final = "reportingComponent"
_FIXED_FIELDS: Final = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
"""What an update through `events.k8s.io` may not change: everything but the series."""
_HOME_NAMESPACES: Final = ("default", "kube-system")
"""Where events about objects of the whole cluster are."""
_REQUIRED: Final = ("reportingInstance", "action", "reason")


def validate_event(event: Document, controller_field: str = _CONTROLLER) -> FieldErrors:
    """Check an event of either group."""
    is_new_style = is_set(event, "eventTime")
    yield from _validate_namespaces(event, is_new_style)
    if not is_new_style:
        return
    controller, path = get_text(event, _CONTROLLER), ROOT.child(controller_field)
    if not controller:
        yield required(path)
    yield from report_name_faults(check_qualified_name(controller), path)
    for field, limit in _MAX_BYTES.items():
        value = get_text(event, field)
        if not value and field in _REQUIRED:
            yield required(ROOT.child(field))
        if count_bytes(value) > limit:
            yield invalid(ROOT.child(field), "", f"can have at most {limit} characters")


def _validate_namespaces(event: Document, is_new_style: bool) -> FieldErrors:
    """Check that an event is in the namespace of its object."""
    namespace = get_text(get_mapping(event, "metadata"), "namespace")
    involved = get_text(get_mapping(event, "involvedObject"), "namespace")
    if involved:
        matches = is_new_style or involved == namespace
    else:
        matches = namespace in _HOME_NAMESPACES[: 2 if is_new_style else 1]
    if not matches:
        path = ROOT.child("involvedObject").child("namespace")
        yield invalid(path, involved, "does not match the namespace of the event")


def validate_strict_event(event: Document) -> FieldErrors:
    """Check a new event of `events.k8s.io`."""
    yield from validate_event(event, "reportingController")
    yield from _validate_series(event)
    if not is_set(event, "eventTime"):
        yield required(ROOT.child("eventTime"))
    if get_text(event, "type") not in _TYPES:
        yield invalid(ROOT.child("type"), get_text(event, "type"), f"must be one of {', '.join(_TYPES)}")
    for field in ("firstTimestamp", "lastTimestamp", "count"):
        if event.get(field):
            yield invalid(ROOT.child(field), "", "needs to be unset")
    if any(get_mapping(event, "source").values()):
        yield invalid(ROOT.child("source"), "", "needs to be unset")


def _validate_series(event: Document) -> FieldErrors:
    series, path = find_mapping(event, "series"), ROOT.child("series")
    if series is None:
        return
    if get_number(series, "count") < 2:
        yield invalid(path.child("count"), get_number(series, "count"), "should be at least 2")
    if not is_set(series, "lastObservedTime"):
        yield required(path.child("lastObservedTime"))


def validate_changed_event(new: Document, old: Document) -> FieldErrors:
    """Check a change through the core group."""
    return validate_event(new)


def validate_changed_strict_event(new: Document, old: Document) -> FieldErrors:
    """Check a change through `events.k8s.io`."""
    yield from validate_event(new, "reportingController")
    if new.get("series") != old.get("series"):
        yield from _validate_series(new)
    for field in _FIXED_FIELDS:
        compared = _COMPARED.get(field, _keep)
        if not is_same_document(compared(new.get(field)), compared(old.get(field))):
            name = "reportingController" if field == _CONTROLLER else field
            yield from validate_immutable(new.get(field), object(), ROOT.child(name))


def _keep(value: Any) -> Any:
    return value


def _truncate_time(value: Any) -> Any:
    """A time in microseconds: clients write and read no more."""
    if not isinstance(value, str) or "." not in value:
        return value
    seconds, _, fraction = value.rstrip("Z").partition(".")
    rest = fraction[:6].rstrip("0")
    return f"{seconds}.{rest}Z" if rest else f"{seconds}Z"


_COMPARED: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType({"eventTime": _truncate_time})
