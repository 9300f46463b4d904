"""Validation rules that several kinds share: names, lists, opaque parameters, selectors, tolerations.

Theory of operation: a rule takes a value and its path and yields errors, none for a valid value. The modules
of `kinds` combine them. A path below the given one is built only for an error, because almost every object is
valid and validation delays every write.

Rules for this file: a rule that only one kind needs belongs to the module of that kind; no gate, no old
object, no default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from dray.api import limits
from dray.api.devices.device_cel import InvalidSelector, compile_stored_selector
from dray.api.fields import (
    FieldError,
    FieldErrorType,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from dray.api.resource import DeviceSelector, DeviceToleration, OpaqueDeviceConfiguration
from dray.values.names import (
    NameFaults,
    check_driver_name,
    check_label_value,
    check_qualified_name,
    count_bytes,
)
from dray.values.node_selectors import NodeSelector
from dray.values.node_selectors import check_node_selector as selector_faults

T = TypeVar("T")
FieldErrors: TypeAlias = Iterator[FieldError]
FieldRule: TypeAlias = Callable[[T, FieldPath], FieldErrors]

IMMUTABLE = "field is immutable"
OMITTED = "<value omitted>"
"""Stands for a value that is too long or too opaque to be repeated in an error."""

EFFECTS = ("NoSchedule", "NoExecute", "None")
EXISTS, EQUAL = "Exists", "Equal"


def report_name_faults(faults: NameFaults, path: FieldPath) -> FieldErrors:
    """Convert the faults of a name to errors."""
    for fault in faults:
        if fault.too_long is None:
            yield invalid(path, fault.value, fault.text)
        else:
            yield too_long(path, fault.too_long)


def validate_name(name: str, rule: Callable[[str], NameFaults], path: FieldPath) -> FieldErrors:
    """Check a name that is required and must follow a rule."""
    if not name:
        yield required(path)
    elif faults := rule(name):
        yield from report_name_faults(faults, path)


def validate_one_of(value: str, supported: tuple[str, ...], path: FieldPath) -> FieldErrors:
    """Check a required value of a closed set."""
    if not value:
        yield required(path)
    elif value not in supported:
        yield not_supported(path, value, supported)


def validate_immutable(new: object, old: object, path: FieldPath) -> FieldErrors:
    """Check that a field keeps the value it was created with."""
    if new != old:
        yield invalid(path, new, IMMUTABLE)


# --- lists and maps ---


def validate_each(items: Sequence[T], limit: int, rule: FieldRule[T], path: FieldPath) -> FieldErrors:
    """Check every item of a list, unless the list is too long."""
    if len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for position, item in enumerate(items):
        yield from rule(item, path.index(position))


def validate_distinct(keys: Iterable[Hashable], path: FieldPath) -> FieldErrors:
    """Check that the items of a list have distinct keys; the second of two equal ones is reported."""
    seen: set[Hashable] = set()
    for position, key in enumerate(keys):
        if key in seen:
            yield duplicate(path.index(position), key)
        seen.add(key)


def validate_keys(names: Iterable[str], rule: Callable[[str], NameFaults], path: FieldPath) -> FieldErrors:
    """Check the keys of a map; an error has the path of the map and quotes the key."""
    for name in names:
        if faults := rule(name):
            yield from report_name_faults(faults, path)


# --- opaque values ---


def validate_opaque(raw: msgspec.Raw, limit: int, path: FieldPath) -> FieldErrors:
    """Check a required JSON object of bounded size."""
    written = bytes(raw)
    if not written:
        yield required(path)
    elif len(written) > limit:
        yield too_long(path, limit)
    else:
        yield from _validate_json_object(written, path)


def _validate_json_object(written: bytes, path: FieldPath) -> FieldErrors:
    if problem := find_json_error(written):
        yield invalid(path, OMITTED, problem)
        return
    value = msgspec.json.decode(written)
    if value is None:
        yield required(path)
    elif not isinstance(value, dict):
        yield invalid(path, OMITTED, "must be a valid JSON object")


def find_json_error(written: bytes) -> str:
    """Return why opaque parameters are not JSON; empty when they are."""
    try:
        msgspec.json.decode(written)
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        return f"error parsing data as JSON: {broken}"
    except RecursionError:
        return "error parsing data as JSON: nested too deeply"
    return ""


def validate_opaque_config(config: OpaqueDeviceConfiguration | None, path: FieldPath) -> FieldErrors:
    """Check the `opaque` field of a configuration entry."""
    if config is None:
        yield required(path.child("opaque"))
        return
    if not config.driver or check_driver_name(config.driver):
        yield from validate_name(config.driver, check_driver_name, path.child("opaque", "driver"))
    yield from validate_opaque(config.parameters, limits.OPAQUE_BYTES, path.child("opaque", "parameters"))


# --- selectors, tolerations, nodes ---


def validate_selector(item: DeviceSelector, path: FieldPath) -> FieldErrors:
    """Check a selector: its expression is present, short, compiles, and has a bounded cost for any device."""
    if item.cel is None:
        yield required(path.child("cel"))
    elif not item.cel.expression:
        yield invalid(path.child("cel", "expression"), "", "an expression is needed, such as `true`")
    elif count_bytes(item.cel.expression) > limits.EXPRESSION_BYTES:
        yield too_long(path.child("cel", "expression"), limits.EXPRESSION_BYTES)
    else:
        yield from _validate_expression(item.cel.expression, path)


def _validate_expression(text: str, path: FieldPath) -> FieldErrors:
    """Compile with all gates on: a gated expression was allowed when the object was written, or refused
    earlier.
    """
    compiled = compile_stored_selector(text)
    if isinstance(compiled, InvalidSelector):
        yield invalid(path.child("cel", "expression"), text, compiled.detail)
    elif compiled.is_too_complex:
        yield forbidden(path.child("cel", "expression"), "too complex, exceeds cost limit")


def validate_toleration(item: DeviceToleration, path: FieldPath) -> FieldErrors:
    """Check a toleration; an empty key or effect means all of them."""
    if item.key and (faults := check_qualified_name(item.key)):
        yield from report_name_faults(faults, path.child("key"))
    if item.operator == EXISTS:
        if item.value:
            yield invalid(path.child("value"), item.value, "must be empty for operator `Exists`")
    elif item.operator == EQUAL:
        yield from report_name_faults(check_label_value(item.value), path.child("value"))
    else:
        yield from validate_one_of(item.operator, (EQUAL, EXISTS), path.child("operator"))
    if item.effect and item.effect not in EFFECTS:
        yield not_supported(path.child("effect"), item.effect, EFFECTS)


def validate_node_selector(item: NodeSelector, path: FieldPath) -> FieldErrors:
    """Check the terms and requirements of a node selector."""
    for fault in selector_faults(item):
        yield FieldError(FieldErrorType(fault.kind), str(path.child(fault.path)), fault.value, fault.text)


def validate_single_term(item: NodeSelector, path: FieldPath) -> FieldErrors:
    """Check a node selector that must be mergeable with others, which only those with one term are."""
    yield from validate_node_selector(item, path)
    if len(item.node_selector_terms) != 1:
        found = len(item.node_selector_terms)
        yield invalid(path.child("nodeSelectorTerms"), found, "must have exactly one node selector term")


def validate_binding_conditions(ready: Sequence[str], failed: Sequence[str], path: FieldPath) -> FieldErrors:
    """Check the conditions that a binding waits for, and those that end the waiting; both or none are set."""
    for conditions, field in ((ready, "bindingConditions"), (failed, "bindingFailureConditions")):
        place = path.child(field)
        yield from validate_each(conditions, limits.BINDING_CONDITIONS, _validate_condition_name, place)
        if len(conditions) <= limits.BINDING_CONDITIONS:
            yield from validate_distinct(conditions, place)
    for position in _find_overlaps(failed, frozenset(ready)):
        place = path.child("bindingFailureConditions").index(position)
        yield invalid(
            place, failed[position], "bindingFailureConditions must not overlap with bindingConditions"
        )
    if failed and not ready:
        missing = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(path.child("bindingConditions"), [], missing)
    if ready and not failed:
        missing = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(path.child("bindingFailureConditions"), [], missing)


def _validate_condition_name(name: str, path: FieldPath) -> FieldErrors:
    return report_name_faults(check_qualified_name(name), path)


def _find_overlaps(failed: Sequence[str], ready: Collection[str]) -> Iterator[int]:
    return (position for position, name in enumerate(failed) if name in ready)


# --- one of several ---


def validate_exactly_one(given: Mapping[str, bool], path: FieldPath) -> FieldErrors:
    """Check that exactly one of several fields is set."""
    chosen = [f"`{field}`" for field, present in given.items() if present]
    if len(chosen) == 1:
        return
    *first, last = (f"`{field}`" for field in given)
    expected = f"exactly one of {', '.join(first)} or {last} is required"
    if not chosen:
        yield required(path, expected)
    else:
        yield invalid(path, f"{{{', '.join(chosen)}}}", f"{expected}, but multiple fields are set")


def forbid_field(path: FieldPath) -> FieldError:
    """Report a field that has no meaning here."""
    return forbidden(path, "cannot be set")
