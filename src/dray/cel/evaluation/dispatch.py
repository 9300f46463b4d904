"""Selection of the overload of a call at run time.

The checker already ruled out overloads that cannot fit. When the types of all arguments are static, the rest
is called without checks; when an argument is `dyn`, its value decides. A list counts as a list of the type of
its first item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.cel.declarations import Overload
from dray.cel.faults import make_overload_error
from dray.cel.types import Type, TypeKind
from dray.cel.values import MAP_TYPES, TYPE_NAMES_BY_CLASS, TypeName, UInt, Value, join_type_names

Implementation = Callable[..., Value]

_EXACT_TYPES: Final[dict[TypeKind, type]] = {
    TypeKind.BOOL: bool,
    TypeKind.INT: int,
    TypeKind.UINT: UInt,
    TypeKind.DOUBLE: float,
    TypeKind.STRING: str,
    TypeKind.BYTES: bytes,
    TypeKind.NULL: type(None),
    TypeKind.TYPE: TypeName,
}
_CONTAINER_TYPES: Final = MAP_TYPES | {tuple}


def select_implementation(
    name: str, overloads: tuple[Overload, ...], given: tuple[Type, ...]
) -> Implementation:
    """The function to call; values decide where `given` has `dyn`."""
    first = overloads[0]
    if first.without_type_guards and all(one.run is first.run for one in overloads):
        return first.run
    certain = [one for one in overloads if _is_statically_applicable(one, given)]
    return certain[0].run if certain else _dispatch_by_value(name, overloads)


def _is_statically_applicable(overload: Overload, given: tuple[Type, ...]) -> bool:
    """Whether the static types alone allow the overload."""
    return all(
        wanted.is_open
        or (wanted.kind is one.kind and wanted.name == one.name and _is_outer_kind_sufficient(wanted))
        for wanted, one in zip(overload.params, given, strict=True)
    )


def _is_outer_kind_sufficient(wanted: Type) -> bool:
    """Whether the outermost kind identifies the type; the items of a list of ints need a check, too."""
    return all(param.is_open for param in wanted.params)


def is_instance_of(wanted: Type, value: Value) -> bool:
    """Whether a value is of a type."""
    kind = wanted.kind
    if wanted.is_open:
        return True
    exact = _EXACT_TYPES.get(kind)
    if exact is not None:
        return type(value) is exact
    if kind is TypeKind.LIST:
        return type(value) is tuple and (not value or is_instance_of(wanted.params[0], value[0]))
    if kind is TypeKind.MAP:
        return type(value) in MAP_TYPES
    return TYPE_NAMES_BY_CLASS[type(value)] == wanted.name


def _dispatch_by_value(name: str, overloads: tuple[Overload, ...]) -> Implementation:
    shown = "" if name.startswith(("_", "@", "!", "-")) else name
    # Which overload fits depends on the Python types alone, unless there is a list or map to look into.
    remembered: dict[tuple[type, ...], Implementation] = {}

    def call(*args: Any) -> Value:
        kinds = tuple(map(type, args))
        run = remembered.get(kinds)
        if run is None:
            run = _find_fitting(overloads, args)
            if run is None:
                raise make_overload_error(shown, join_type_names(*args))
            if _CONTAINER_TYPES.isdisjoint(kinds):
                remembered[kinds] = run
        return run(*args)

    return call


def _find_fitting(overloads: tuple[Overload, ...], args: tuple[Value, ...]) -> Implementation | None:
    for overload in overloads:
        if all(is_instance_of(wanted, value) for wanted, value in zip(overload.params, args, strict=True)):
            return overload.run
    return None
