"""The CEL environment of device selectors: the variable `device`, and compiled selectors.

    device.driver                                   string
    device.attributes["domain"].name                the type of the attribute
    device.capacity["domain"].name                  quantity
    device.allowMultipleAllocations                 bool

Theory of operation: a name without a domain belongs to the domain of the driver. A domain without attributes
is empty, and reading an attribute of it is an error (`no such key`), so selectors test with `has` or `in`
first. A list attribute is a list in either spelling; a version is a semantic version.

A compiled selector lists what it `reads` when it reads only a few attributes and capacities by constant
names. Its result depends on them alone, and only they are looked up to evaluate a device.

Gates: a new expression may use only what is enabled. A stored expression may use everything, because it was
allowed when it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from dray.api import limits
from dray.api.devices.device_value import (
    DeviceReads,
    build_device_value,
    build_partial_value,
    resolve_device_reads,
)
from dray.api.resource.device import Device
from dray.cel import (
    CelProgram,
    CompileFault,
    CompileStage,
    Env,
    ErrorReason,
    EvalFault,
    MeasuredResult,
    Variable,
)
from dray.cel import types as t
from dray.cel.cost.size_bounds import SizeBound
from dray.cel.library import INCLUDES_LIBRARY, STANDARD_LIBRARIES
from dray.cel.values import Value, get_type_name
from dray.gates import GateSet
from dray.values.names import MAX_DOMAIN, MAX_DRIVER, MAX_ID

SELECTOR_COST_LIMIT: Final = 1_000_000
"""Limit of a selector's cost, both estimated and actual."""

DEVICE_TYPE: Final = t.Type(t.TypeKind.STRUCT, "kubernetes.DRADevice")

_MAX_SHORT_LENGTH: Final = 512
"""Characters of a short expression; many short ones are cached."""


class DeviceBinding:
    """A device as the variable of selectors. Its value is built on first use, and cached."""

    __slots__ = ("_device", "_driver", "_value")

    def __init__(self, driver: str, device: Device) -> None:
        self._driver = driver
        self._device = device
        self._value: dict[str, Value] | EvalFault | None = None

    def is_bound_to(self, driver: str, device: Device) -> bool:
        """Whether this binds the given device object, by identity."""
        return self._device is device and self._driver == driver

    @property
    def value(self) -> dict[str, Value] | EvalFault:
        """The value of the variable `device`, or why this device has none."""
        if self._value is None:
            self._value = build_device_value(self._driver, self._device)
        return self._value


@dataclass(frozen=True, slots=True)
class InvalidSelector:
    """A selector that cannot be used: in words, and as a value the compile fault or the type of its result.

    It evaluates to the same text for every device, so it reads nothing.
    """

    detail: str
    compile_fault: CompileFault | None = None
    result_type: t.Type | None = None
    reads: DeviceReads = ()
    driver: None = None
    driver_alone: bool = False
    text: None = None

    def __str__(self) -> str:
        return self.detail

    def evaluate(self, driver: str, device: Device) -> bool | str:
        """Return why no device can be evaluated."""
        return self.detail


@dataclass(frozen=True, slots=True)
class CompiledSelector:
    """A compiled selector.

    `reads` is everything its result depends on besides the driver; None when that may be anything. `driver`
    is the only driver for whose devices it can be true, and `driver_alone` means that it tests nothing else.
    With a `text` it only tests whether the one attribute it reads equals that text.
    """

    program: CelProgram
    reads: DeviceReads | None = None
    driver: str | None = None
    driver_alone: bool = False
    text: str | None = None

    def evaluate(self, driver: str, device: Device) -> bool | str:
        """Whether a plain device (see `device_value`) is selected, or why that cannot be decided."""
        if self.reads is None:
            result: Value | EvalFault = self.matches(DeviceBinding(driver, device))
        else:
            result = self.program.evaluate_one(build_partial_value(driver, device, self.reads))
        if result is True or result is False:
            return bool(result)
        found = _to_bool(result)
        return found if isinstance(found, bool) else str(found)

    def matches(self, device: DeviceBinding) -> bool | EvalFault:
        """Whether the device is selected, or why that cannot be decided."""
        value = device.value
        if type(value) is EvalFault:
            return value
        return _to_answer(self.program.evaluate_one(value))

    def measure(self, device: DeviceBinding) -> MeasuredResult:
        """Evaluate like `matches`, and return the cost as well."""
        value = device.value
        if type(value) is EvalFault:
            return MeasuredResult(value, 0)
        measured = self.program.measure({"device": value})
        return MeasuredResult(_to_bool(measured.result), measured.cost)

    @property
    def is_too_complex(self) -> bool:
        """Whether the estimated cost exceeds the limit of a selector."""
        return self.program.cost > SELECTOR_COST_LIMIT


SelectorCompilation: TypeAlias = CompiledSelector | InvalidSelector


def bind_device(driver: str, device: Device) -> DeviceBinding:
    """Bind a device of a driver, for any number of selectors."""
    return DeviceBinding(driver, device)


def compile_stored_selector(expression: str) -> SelectorCompilation:
    """Compile the expression of a stored selector, which may use everything, whatever the gates are."""
    return _compile_cached(expression, True, True)


def compile_selector(expression: str, *, stored: bool, gates: GateSet) -> SelectorCompilation:
    """Compile the expression of a selector, new or as it was stored."""
    sharing = stored or gates.is_enabled("DRAConsumableCapacity")
    lists = stored or gates.is_enabled("DRAListTypeAttributes")
    return _compile_cached(expression, sharing, lists)


def compile_uncached(expression: str) -> SelectorCompilation:
    """Compile like `compile_stored_selector`, without the cache: for measurements of the compiler."""
    return _compile(expression, True, True)


def _compile_cached(expression: str, sharing: bool, lists: bool) -> SelectorCompilation:
    compiled = _compile_short if len(expression) <= _MAX_SHORT_LENGTH else _compile_long
    return compiled(expression, sharing, lists)


@lru_cache(maxsize=512)
def _compile_short(expression: str, sharing: bool, lists: bool) -> SelectorCompilation:
    return _compile(expression, sharing, lists)


@lru_cache(maxsize=32)
def _compile_long(expression: str, sharing: bool, lists: bool) -> SelectorCompilation:
    """Compile and cache a long expression; few are cached, as a program takes a hundred times the memory of
    its text.
    """
    return _compile(expression, sharing, lists)


def _compile(expression: str, sharing: bool, lists: bool) -> SelectorCompilation:
    program = build_environment(sharing=sharing, lists=lists).compile(expression)
    if isinstance(program, CompileFault):
        return InvalidSelector(f"{_STAGES[program.stage]}: {program}", program)
    if program.type not in (t.BOOL, _get_attribute_type(lists)):
        detail = f"must evaluate to bool or the unknown type, not {program.type}"
        return InvalidSelector(detail, result_type=program.type)
    return _build_selector(program)


def _build_selector(program: CelProgram) -> CompiledSelector:
    reads = resolve_device_reads(program.variable_reads.find_reads("device"))
    demanded = program.variable_reads.find_required_text("device")
    if demanded is not None and demanded.path == ("driver",):
        return CompiledSelector(program, reads, demanded.text, demanded.is_only_condition)
    if demanded is not None and demanded.is_only_condition and len(demanded.path) == 3 and reads:
        return CompiledSelector(program, reads, text=demanded.text)
    return CompiledSelector(program, reads)


_STAGES: Final = {
    CompileStage.CHECK: "compilation failed",
    CompileStage.PLAN: "program instantiation failed",
    CompileStage.INTERNAL: "compilation failed",
}


# --- the declaration ---


@lru_cache(maxsize=4)
def build_environment(*, sharing: bool, lists: bool) -> Env:
    """Return the environment of selectors, with or without what the two gates add."""
    attribute = _get_attribute_type(lists)
    fields = {
        "driver": t.STRING,
        "attributes": t.make_map_type(t.STRING, t.make_map_type(t.STRING, attribute)),
        "capacity": t.make_map_type(t.STRING, t.make_map_type(t.STRING, t.QUANTITY)),
    }
    if sharing:
        fields["allowMultipleAllocations"] = t.BOOL
    libraries = (*STANDARD_LIBRARIES, INCLUDES_LIBRARY) if lists else STANDARD_LIBRARIES
    return Env((Variable("device", DEVICE_TYPE, _EXTENT),), libraries, {DEVICE_TYPE.name: fields})


def _get_attribute_type(lists: bool) -> t.Type:
    """Return the type of attributes: known only at run time, and iterable only with lists."""
    return t.DYN if lists else t.ANY


# The limits of the API, which bound what an expression can cost. Kubernetes does not know the size of a
# quantity, nor that of a whole device.
_ENTRIES: Final = limits.ATTRIBUTES_AND_CAPACITIES_PER_DEVICE
_VALUE: Final = SizeBound(limits.ATTRIBUTE_VALUE_BYTES)
_EXTENT: Final = SizeBound(
    0,
    fields={
        "driver": SizeBound(MAX_DRIVER),
        "allowMultipleAllocations": SizeBound(1),
        "attributes": SizeBound(
            _ENTRIES,
            keys=SizeBound(MAX_DOMAIN),
            values=SizeBound(
                _ENTRIES,
                keys=SizeBound(MAX_ID),
                values=_VALUE,
                named=_VALUE,
            ),
        ),
        "capacity": SizeBound(
            _ENTRIES,
            keys=SizeBound(MAX_DOMAIN),
            values=SizeBound(_ENTRIES, keys=SizeBound(MAX_ID)),
        ),
    },
)


# --- the result ---

_NO_BOOL: Final = {
    "string": "unsupported native conversion from string to 'bool'",
    "list": "type conversion error from list to 'bool'",
    **{
        name: f"unsupported type conversion from '{name}' to bool"
        for name in ("int", "uint", "double", "bytes")
    },
}


def _to_answer(result: Value | EvalFault) -> bool | EvalFault:
    return result if result is True or result is False else _to_bool(result)


def _to_bool(result: Value | EvalFault) -> bool | EvalFault:
    if result is True or result is False:
        return bool(result)
    if type(result) is EvalFault:
        return result
    name = get_type_name(result)
    why = _NO_BOOL.get(name, f"type conversion error from '{name}' to 'bool'")
    message = f"CEL result of type {name} could not be converted to bool: {why}"
    return EvalFault(message, reason=ErrorReason.NOT_BOOLEAN)
