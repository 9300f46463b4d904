"""The CEL variable `device`: what a selector may say about a device, and how a device becomes its value.

    device.driver                                   string
    device.attributes["domain"].name                whatever the attribute holds
    device.capacity["domain"].name                  quantity
    device.allowMultipleAllocations                 bool

Theory of operation: a name without a domain belongs to the domain of the driver. A domain nobody published
holds nothing, and asking it for an attribute is an error (`no such key`), so selectors test with `has` or
`in` first. A list attribute is a list, whichever way it was written; a version is a semantic version.

A selector tells what it `reads`, where that is a few attributes and capacities written out in it. Its answer
depends on them alone, and only they are looked up to judge a device.

Gates: an expression that comes in new may use only what is switched on. One that was stored may use
everything, because it was allowed to when it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from dray.api.resource.device import Device, DeviceAttribute
from dray.cel import CompileFault, Env, EvalFault, Measured, Program, Read, Stage, Variable
from dray.cel import types as t
from dray.cel.extents import Extent
from dray.cel.library import INCLUDES, STANDARD
from dray.cel.values import OpenMap, Value, type_name
from dray.gates import GateSet
from dray.values.names import MAX_DOMAIN, MAX_DRIVER, MAX_ID
from dray.values.semver import Version, VersionError

MAX_EXPRESSION: Final = 10 * 1024
"""Bytes of an expression; validation refuses more before anything is compiled."""
COST_LIMIT: Final = 1_000_000
"""What a selector may cost, at worst and in fact."""

DEVICE: Final = t.Type(t.Kind.STRUCT, "kubernetes.DRADevice")

_SHORT: Final = 512
"""Characters of an expression of which many are remembered."""
_MAX_ATTRIBUTES: Final = 32
_MAX_VALUE: Final = 64


@dataclass(frozen=True, slots=True)
class SelectorFault:
    """A selector that cannot be used: in words, and what the compiler found when it was the compiler."""

    detail: str
    compiling: CompileFault | None = None

    def __str__(self) -> str:
        return self.detail


class DeviceBinding:
    """A device as selectors see it. The value is built when it is first asked for, and kept."""

    __slots__ = ("_device", "_driver", "_value")

    def __init__(self, driver: str, device: Device) -> None:
        self._driver = driver
        self._device = device
        self._value: dict[str, Value] | EvalFault | None = None

    def is_of(self, driver: str, device: Device) -> bool:
        """Whether it is this device, the very object."""
        return self._device is device and self._driver == driver

    @property
    def value(self) -> dict[str, Value] | EvalFault:
        """The value of the variable `device`, or why this device has none."""
        if self._value is None:
            self._value = _built(self._driver, self._device)
        return self._value


class DeviceRead(NamedTuple):
    """Something of a device, other than its driver, that a selector looks at.

    `field` is that of the variable. Attributes and capacities have a domain and an id; an empty id asks only
    whether the domain holds anything.
    """

    field: str
    domain: str = ""
    id: str = ""


DeviceReads: TypeAlias = tuple[DeviceRead, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector.

    `reads` is all that its answer depends on, next to the driver; None when that may be anything. `driver` is
    the only driver for whose devices it can be true, and `driver_alone` says that it asks nothing else.
    """

    program: Program
    reads: DeviceReads | None = None
    driver: str | None = None
    driver_alone: bool = False

    def matches_plain(self, driver: str, device: Device) -> bool | EvalFault:
        """Like `matches`, for a plain device (see `is_plain`): only what is read is made a value."""
        if self.reads is None:
            return self.matches(DeviceBinding(driver, device))
        return _answer(self.program.evaluate_one(_read_value(driver, device, self.reads)))

    def matches(self, device: DeviceBinding) -> bool | EvalFault:
        """Whether the device is selected, or why that cannot be said."""
        value = device.value
        if type(value) is EvalFault:
            return value
        return _answer(self.program.evaluate_one(value))

    def measure(self, device: DeviceBinding) -> Measured:
        """Like `matches`, and what it cost."""
        value = device.value
        if type(value) is EvalFault:
            return Measured(value, 0)
        measured = self.program.measure({"device": value})
        return Measured(_as_bool(measured.result), measured.cost)

    @property
    def is_too_complex(self) -> bool:
        """Whether the worst case costs more than a selector may."""
        return self.program.cost > COST_LIMIT


Compiled: TypeAlias = Selector | SelectorFault


def prepare(driver: str, device: Device) -> DeviceBinding:
    """A device of a driver, ready for any number of selectors."""
    return DeviceBinding(driver, device)


def compile_stored(expression: str) -> Compiled:
    """Compile the expression of a selector that may use everything there is, whatever the gates are."""
    return _remembered(expression, True, True)


def compile_selector(expression: str, *, stored: bool, gates: GateSet) -> Compiled:
    """Compile the expression of a selector, new or as it was stored."""
    sharing = stored or gates.enabled("DRAConsumableCapacity")
    lists = stored or gates.enabled("DRAListTypeAttributes")
    return _remembered(expression, sharing, lists)


def compile_anew(expression: str) -> Compiled:
    """Like `compile_stored`, without looking whether it was compiled before: to measure what that takes."""
    return _compile(expression, True, True)


def _remembered(expression: str, sharing: bool, lists: bool) -> Compiled:
    compiled = _compiled if len(expression) <= _SHORT else _long
    return compiled(expression, sharing, lists)


@lru_cache(maxsize=512)
def _compiled(expression: str, sharing: bool, lists: bool) -> Compiled:
    return _compile(expression, sharing, lists)


@lru_cache(maxsize=32)
def _long(expression: str, sharing: bool, lists: bool) -> Compiled:
    """Of long expressions few are remembered: a program takes a hundred times as much as its text."""
    return _compile(expression, sharing, lists)


def _compile(expression: str, sharing: bool, lists: bool) -> Compiled:
    program = environment(sharing=sharing, lists=lists).compile(expression)
    if isinstance(program, CompileFault):
        return SelectorFault(f"{_STAGES[program.stage]}: {program}", program)
    if program.type not in (t.BOOL, _attribute_type(lists)):
        return SelectorFault(f"must evaluate to bool or the unknown type, not {program.type}")
    return _selector(program)


def _selector(program: Program) -> Selector:
    reads = _device_reads(program.reading.reads("device"))
    demanded = program.reading.demanded("device")
    if demanded is None or demanded.words != ("driver",):
        return Selector(program, reads)
    return Selector(program, reads, demanded.text, demanded.alone)


def _device_reads(reads: Iterable[Read] | None) -> DeviceReads | None:
    """What a selector reads, in terms of a device; None when it uses a whole map, or odd names."""
    if reads is None:
        return None
    found: set[DeviceRead] = set()
    for words, presence in reads:
        field, domain, id = (*words, "", "")[:3]
        if field == "driver":
            continue
        if field not in _MAPS:
            found.add(DeviceRead(field))
        elif len(words) > 2 and "/" not in domain and "/" not in id and id:
            found.add(DeviceRead(field, domain, id))
        elif len(words) == 2 and presence and "/" not in domain:
            found.add(DeviceRead(field, domain))
        elif len(words) != 1 or not presence:
            return None
    return tuple(sorted(found))


_MAPS: Final = ("attributes", "capacity")

_STAGES: Final = {
    Stage.CHECK: "compilation failed",
    Stage.PLAN: "program instantiation failed",
    Stage.INTERNAL: "compilation failed",
}


# --- the declaration ---


@lru_cache(maxsize=4)
def environment(*, sharing: bool, lists: bool) -> Env:
    """The environment of selectors, with or without what the two gates add."""
    attribute = _attribute_type(lists)
    fields = {
        "driver": t.STRING,
        "attributes": t.map_of(t.STRING, t.map_of(t.STRING, attribute)),
        "capacity": t.map_of(t.STRING, t.map_of(t.STRING, t.QUANTITY)),
    }
    if sharing:
        fields["allowMultipleAllocations"] = t.BOOL
    libraries = (*STANDARD, INCLUDES) if lists else STANDARD
    return Env((Variable("device", DEVICE, _EXTENT),), libraries, {DEVICE.name: fields})


def _attribute_type(lists: bool) -> t.Type:
    """What an attribute holds is known only at run time; before there were lists it could not be iterated."""
    return t.DYN if lists else t.ANY


# The limits of the API, which bound what an expression can cost. Kubernetes does not know the size of a
# quantity, nor that of a whole device.
_VALUE: Final = Extent(_MAX_VALUE)
_EXTENT: Final = Extent(
    0,
    fields={
        "driver": Extent(MAX_DRIVER),
        "allowMultipleAllocations": Extent(1),
        "attributes": Extent(
            _MAX_ATTRIBUTES,
            keys=Extent(MAX_DOMAIN),
            values=Extent(_MAX_ATTRIBUTES, keys=Extent(MAX_ID), values=_VALUE, named=_VALUE),
        ),
        "capacity": Extent(
            _MAX_ATTRIBUTES,
            keys=Extent(MAX_DOMAIN),
            values=Extent(_MAX_ATTRIBUTES, keys=Extent(MAX_ID)),
        ),
    },
)


# --- the value ---


def _built(driver: str, device: Device) -> dict[str, Value] | EvalFault:
    attributes = OpenMap()
    capacity = OpenMap()
    for name, attribute in device.attributes.items():
        try:
            value = _attribute_value(attribute)
        except VersionError as bad:
            return EvalFault(f"attribute {name}: parse semantic version: {bad.reason}")
        if value is None:
            return EvalFault(f"attribute {name}: unsupported attribute value")
        _put(attributes, driver, name, value)
    for name, amount in device.capacity.items():
        if amount.value is None:
            return EvalFault(f"capacity {name}: no value")
        _put(capacity, driver, name, amount.value)
    return {
        "driver": driver,
        "allowMultipleAllocations": device.allow_multiple_allocations is True,
        "attributes": attributes,
        "capacity": capacity,
    }


def is_plain(driver: str, device: Device) -> bool:
    """Whether the value of a device can be built in full, and no part of it has two names."""
    own = f"{driver}/"
    attributes, capacity = device.attributes, device.capacity
    for name, attribute in attributes.items():
        if name.startswith(own) and name[len(own) :] in attributes:
            return False
        if attribute.string_value is None and attribute.int_value is None and attribute.bool_value is None:
            try:
                if _attribute_value(attribute) is None:
                    return False
            except VersionError:
                return False
    for name, amount in capacity.items():
        if amount.value is None or (name.startswith(own) and name[len(own) :] in capacity):
            return False
    return True


def _read_value(driver: str, device: Device, reads: DeviceReads) -> dict[str, Value]:
    """The value of a plain device, as far as it is read."""
    attributes = OpenMap()
    capacity = OpenMap()
    value: dict[str, Value] = {"driver": driver, "attributes": attributes, "capacity": capacity}
    for field, domain, id in reads:
        if field == "allowMultipleAllocations":
            value[field] = device.allow_multiple_allocations is True
        elif field in _MAPS:
            held: Any = device.attributes if field == "attributes" else device.capacity
            within: OpenMap = value[field]
            if not id:
                if has_domain(driver, held, domain):
                    within.setdefault(domain, {})
                continue
            found = read_named(driver, held, domain, id)
            if found is not None:
                held_value = _attribute_value(found) if field == "attributes" else found.value
                within.setdefault(domain, {})[id] = held_value
    return value


def read_named(driver: str, held: Mapping[str, Any], domain: str, id: str) -> Any:
    """An attribute or capacity by domain and id, as a plain device published it; None when it did not."""
    found = held.get(f"{domain}/{id}")
    return held.get(id) if found is None and domain == driver else found


def has_domain(driver: str, held: Mapping[str, Any], domain: str) -> bool:
    """Whether a device published anything in a domain."""
    own = domain == driver
    return any(name.startswith(f"{domain}/") or (own and "/" not in name) for name in held)


def _put(domains: dict[str, Any], driver: str, name: str, value: Value) -> None:
    domain, slash, id = name.partition("/")
    if not slash:
        domain, id = driver, name
    within = domains.get(domain)
    if within is None:
        within = domains[domain] = {}
    within[id] = value


def _attribute_value(attribute: DeviceAttribute) -> Value | None:
    """What an attribute holds, as a value of CEL; nothing when no member is set."""
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.version_value is not None:
        return Version.parse(attribute.version_value)
    held = attribute.held()
    if held is None:
        return None
    kind, values = held
    return tuple(Version.parse(str(one)) for one in values) if kind == "version" else values


# --- the answer ---

_NO_BOOL: Final = {
    "string": "unsupported native conversion from string to 'bool'",
    "list": "type conversion error from list to 'bool'",
    **{
        name: f"unsupported type conversion from '{name}' to bool"
        for name in ("int", "uint", "double", "bytes")
    },
}


def _answer(result: Value | EvalFault) -> bool | EvalFault:
    return result if result is True or result is False else _as_bool(result)


def _as_bool(result: Value | EvalFault) -> bool | EvalFault:
    if result is True or result is False:
        return bool(result)
    if type(result) is EvalFault:
        return result
    name = type_name(result)
    why = _NO_BOOL.get(name, f"type conversion error from '{name}' to 'bool'")
    return EvalFault(f"CEL result of type {name} could not be converted to bool: {why}")
