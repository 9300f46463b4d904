"""The CEL variable `device`: what a selector may say about a device, and how a device becomes its value.

    device.driver                                   string
    device.attributes["domain"].name                whatever the attribute holds
    device.capacity["domain"].name                  quantity
    device.allowMultipleAllocations                 bool

Theory of operation: a name without a domain belongs to the domain of the driver. A domain nobody published
holds nothing, and asking it for an attribute is an error (`no such key`), so selectors test with `has` or
`in` first. A list attribute is a list, whichever way it was written; a version is a semantic version.

Gates: an expression that comes in new may use only what is switched on. One that was stored may use
everything, because it was allowed to when it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from dray.api.resource.device import Device, DeviceAttribute
from dray.cel import CompileFault, Env, EvalFault, Measured, Program, Stage, Variable
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

    @property
    def value(self) -> dict[str, Value] | EvalFault:
        """The value of the variable `device`, or why this device has none."""
        if self._value is None:
            self._value = _built(self._driver, self._device)
        return self._value


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled selector."""

    program: Program

    def matches(self, device: DeviceBinding) -> bool | EvalFault:
        """Whether the device is selected, or why that cannot be said."""
        value = device.value
        if type(value) is EvalFault:
            return value
        result = self.program.evaluate({"device": value})
        return result if result is True or result is False else _as_bool(result)

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
    return Selector(program)


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


def _as_bool(result: Value | EvalFault) -> bool | EvalFault:
    if result is True or result is False:
        return bool(result)
    if type(result) is EvalFault:
        return result
    name = type_name(result)
    why = _NO_BOOL.get(name, f"type conversion error from '{name}' to 'bool'")
    return EvalFault(f"CEL result of type {name} could not be converted to bool: {why}")
