"""Which overload a call means, once its arguments are values.

The checker already ruled out overloads that cannot fit. When the types of all arguments are certain, what is
left is called without looking; when an argument may be anything, its value decides. A list is taken for what
its first item is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.cel.declarations import Overload
from dray.cel.faults import no_such_overload
from dray.cel.types import Kind, Type
from dray.cel.values import MAPS, NAMES, TypeName, UInt, Value, type_names

Run = Callable[..., Value]

_EXACT: Final[dict[Kind, type]] = {
    Kind.BOOL: bool,
    Kind.INT: int,
    Kind.UINT: UInt,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.NULL: type(None),
    Kind.TYPE: TypeName,
}
_HOLDING: Final = MAPS | {tuple}


def chosen(name: str, overloads: tuple[Overload, ...], given: tuple[Type, ...]) -> Run:
    """The function to call; `given` has `dyn` for what is not certain, and then the values are looked at."""
    first = overloads[0]
    if first.careful and all(one.run is first.run for one in overloads):
        return first.run
    certain = [one for one in overloads if _certain(one, given)]
    return certain[0].run if certain else _by_value(name, overloads)


def _certain(overload: Overload, given: tuple[Type, ...]) -> bool:
    """Whether the types alone say that the overload can be called."""
    return all(
        wanted.is_open or (wanted.kind is one.kind and wanted.name == one.name and _plain(wanted))
        for wanted, one in zip(overload.params, given, strict=True)
    )


def _plain(wanted: Type) -> bool:
    """Whether the outermost kind is all there is to know; a list of ints must be looked into."""
    return all(param.is_open for param in wanted.params)


def accepts(wanted: Type, value: Value) -> bool:
    """Whether a value is of a type."""
    kind = wanted.kind
    if wanted.is_open:
        return True
    exact = _EXACT.get(kind)
    if exact is not None:
        return type(value) is exact
    if kind is Kind.LIST:
        return type(value) is tuple and (not value or accepts(wanted.params[0], value[0]))
    if kind is Kind.MAP:
        return type(value) in MAPS
    return NAMES[type(value)] == wanted.name


def _by_value(name: str, overloads: tuple[Overload, ...]) -> Run:
    shown = "" if name.startswith(("_", "@", "!", "-")) else name
    # Which overload fits depends on the Python types alone, unless there is a list or map to look into.
    remembered: dict[tuple[type, ...], Run] = {}

    def call(*args: Any) -> Value:
        kinds = tuple(map(type, args))
        run = remembered.get(kinds)
        if run is None:
            run = _fitting(overloads, args)
            if run is None:
                raise no_such_overload(shown, type_names(*args))
            if _HOLDING.isdisjoint(kinds):
                remembered[kinds] = run
        return run(*args)

    return call


def _fitting(overloads: tuple[Overload, ...], args: tuple[Value, ...]) -> Run | None:
    for overload in overloads:
        if all(accepts(wanted, value) for wanted, value in zip(overload.params, args, strict=True)):
            return overload.run
    return None
