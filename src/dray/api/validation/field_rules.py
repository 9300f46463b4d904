"""Rules that several kinds share: names, lists, opaque parameters, selectors, tolerations, conditions.

Theory of operation: a rule takes a value and the path to it and yields what is wrong, nothing for a sound
value. Each kind's file composes them. A path below the given one is built only where there is something to
report, because almost every object is sound and validation stands in the way of every write.

Rules for this file: what only one kind needs belongs to that kind's file; no gate, no old object, no default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from dray.api.devices.device_cel import SelectorFault, compile_stored
from dray.api.fields import (
    Fault,
    FieldError,
    Path,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from dray.api.resource import DeviceSelector, DeviceToleration, OpaqueDeviceConfiguration
from dray.api.validation import limits
from dray.values.names import Faults, driver_name, label_value, qualified_name
from dray.values.node_selectors import NodeSelector
from dray.values.node_selectors import faults as selector_faults

T = TypeVar("T")
Errors: TypeAlias = Iterator[FieldError]
Judge: TypeAlias = Callable[[T, Path], Errors]

IMMUTABLE = "field is immutable"
OMITTED = "<value omitted>"
"""Stands for a value that is too long or too opaque to be repeated in an error."""

EFFECTS = ("NoSchedule", "NoExecute", "None")
EXISTS, EQUAL = "Exists", "Equal"


def misnamed(faults: Faults, path: Path) -> Errors:
    """What a name rule found, as errors at a place."""
    for fault in faults:
        if fault.too_long is None:
            yield invalid(path, fault.value, fault.text)
        else:
            yield too_long(path, fault.too_long)


def named(name: str, rule: Callable[[str], Faults], path: Path) -> Errors:
    """A name that must be there and keep a rule."""
    if not name:
        yield required(path)
    elif faults := rule(name):
        yield from misnamed(faults, path)


def size(text: str) -> int:
    """The length in bytes, which is what limits count."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def one_of(value: str, supported: tuple[str, ...], path: Path) -> Errors:
    """A value from a closed set, which must be there."""
    if not value:
        yield required(path)
    elif value not in supported:
        yield not_supported(path, value, supported)


def unchanged(new: object, old: object, path: Path) -> Errors:
    """A field that keeps the value it was created with."""
    if new != old:
        yield invalid(path, new, IMMUTABLE)


# --- lists and maps ---


def each(items: Sequence[T], limit: int, judge: Judge[T], path: Path) -> Errors:
    """Every item of a list that is not too long; items of an overlong list are not looked at."""
    if len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for position, item in enumerate(items):
        yield from judge(item, path.index(position))


def distinct(keys: Iterable[Hashable], path: Path) -> Errors:
    """Items of a list that must differ in their keys; the second of two equal ones is reported."""
    seen: set[Hashable] = set()
    for position, key in enumerate(keys):
        if key in seen:
            yield duplicate(path.index(position), key)
        seen.add(key)


def keyed(names: Iterable[str], rule: Callable[[str], Faults], path: Path) -> Errors:
    """The keys of a map; an error stands at the map and quotes the key."""
    for name in names:
        if faults := rule(name):
            yield from misnamed(faults, path)


# --- values that only their driver understands ---


def opaque(raw: msgspec.Raw, limit: int, path: Path) -> Errors:
    """A JSON object of bounded size that must be there."""
    written = bytes(raw)
    if not written:
        yield required(path)
    elif len(written) > limit:
        yield too_long(path, limit)
    else:
        yield from _json_object(written, path)


def _json_object(written: bytes, path: Path) -> Errors:
    try:
        value = msgspec.json.decode(written)
    except (msgspec.MsgspecError, UnicodeDecodeError) as broken:
        yield invalid(path, OMITTED, f"error parsing data as JSON: {broken}")
    except RecursionError:
        yield invalid(path, OMITTED, "error parsing data as JSON: nested too deeply")
    else:
        if value is None:
            yield required(path)
        elif not isinstance(value, dict):
            yield invalid(path, OMITTED, "must be a valid JSON object")


def configuration(config: OpaqueDeviceConfiguration | None, path: Path) -> Errors:
    """The `opaque` member that every configuration entry has."""
    if config is None:
        yield required(path.field("opaque"))
        return
    if not config.driver or driver_name(config.driver):
        yield from named(config.driver, driver_name, path.field("opaque", "driver"))
    yield from opaque(config.parameters, limits.OPAQUE_BYTES, path.field("opaque", "parameters"))


# --- selectors, tolerations, nodes ---


def selector(item: DeviceSelector, path: Path) -> Errors:
    """A criterion: an expression that is there, short, compiles, and is cheap whatever a device holds."""
    if item.cel is None:
        yield required(path.field("cel"))
    elif not item.cel.expression:
        yield required(path.field("cel", "expression"))
    elif size(item.cel.expression) > limits.EXPRESSION_BYTES:
        yield too_long(path.field("cel", "expression"), limits.EXPRESSION_BYTES)
    else:
        yield from _expression(item.cel.expression, path)


def _expression(text: str, path: Path) -> Errors:
    """What is behind a gate was allowed when the object was written, or refused at the door."""
    compiled = compile_stored(text)
    if isinstance(compiled, SelectorFault):
        yield invalid(path.field("cel", "expression"), text, compiled.detail)
    elif compiled.is_too_complex:
        yield forbidden(path.field("cel", "expression"), "too complex, exceeds cost limit")


def toleration(item: DeviceToleration, path: Path) -> Errors:
    """A toleration: key and effect may be absent, which stands for all of them."""
    if item.key and (faults := qualified_name(item.key)):
        yield from misnamed(faults, path.field("key"))
    if item.operator == EXISTS:
        if item.value:
            yield invalid(path.field("value"), item.value, "must be empty for operator `Exists`")
    elif item.operator == EQUAL:
        yield from misnamed(label_value(item.value), path.field("value"))
    else:
        yield from one_of(item.operator, (EQUAL, EXISTS), path.field("operator"))
    if item.effect and item.effect not in EFFECTS:
        yield not_supported(path.field("effect"), item.effect, EFFECTS)


def node_selector(item: NodeSelector, path: Path) -> Errors:
    """Terms and requirements that make sense."""
    for fault in selector_faults(item):
        yield FieldError(Fault(fault.kind), str(path.field(fault.path)), fault.value, fault.text)


def one_term(item: NodeSelector, path: Path) -> Errors:
    """A node selector that can be merged with others, which only those of one term can."""
    yield from node_selector(item, path)
    if len(item.node_selector_terms) != 1:
        found = len(item.node_selector_terms)
        yield invalid(path.field("nodeSelectorTerms"), found, "must have exactly one node selector term")


def binding_conditions(ready: Sequence[str], failed: Sequence[str], path: Path) -> Errors:
    """Names of conditions that a binding waits for, and of those that end the waiting; both or none."""
    for conditions, field in ((ready, "bindingConditions"), (failed, "bindingFailureConditions")):
        place = path.field(field)
        yield from each(conditions, limits.BINDING_CONDITIONS, _condition_name, place)
        if len(conditions) <= limits.BINDING_CONDITIONS:
            yield from distinct(conditions, place)
    for position in _overlapping(failed, frozenset(ready)):
        place = path.field("bindingFailureConditions").index(position)
        yield invalid(
            place, failed[position], "bindingFailureConditions must not overlap with bindingConditions"
        )
    if failed and not ready:
        missing = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(path.field("bindingConditions"), [], missing)
    if ready and not failed:
        missing = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(path.field("bindingFailureConditions"), [], missing)


def _condition_name(name: str, path: Path) -> Errors:
    return misnamed(qualified_name(name), path)


def _overlapping(failed: Sequence[str], ready: Collection[str]) -> Iterator[int]:
    return (position for position, name in enumerate(failed) if name in ready)


# --- one of several ---


def exactly_one(given: Mapping[str, bool], path: Path) -> Errors:
    """A choice between fields, of which one and only one is made."""
    chosen = [f"`{field}`" for field, present in given.items() if present]
    if len(chosen) == 1:
        return
    *first, last = (f"`{field}`" for field in given)
    expected = f"exactly one of {', '.join(first)} or {last} is required"
    if not chosen:
        yield required(path, expected)
    else:
        yield invalid(path, f"{{{', '.join(chosen)}}}", f"{expected}, but multiple fields are set")


def cannot_be_set(path: Path) -> FieldError:
    """A field that has no meaning here."""
    return forbidden(path, "cannot be set")
