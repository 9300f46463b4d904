"""Declarations of functions: names, overloads with their types, and the Python functions that implement them.

A function is a name with overloads. An overload has parameter types (type variables are written `A`, `K`,
`V`), a result type and the Python function that computes it. That function may rely on the types of its
arguments: the caller has checked them, statically or at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from dray.cel.types import Type, TypeKind, make_type_variable
from dray.cel.values import Value

A: Final = make_type_variable("A")
K: Final = make_type_variable("K")
V: Final = make_type_variable("V")


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function. The `id` is that of cel-go; costs are looked up by it."""

    id: str
    params: tuple[Type, ...]
    result: Type
    run: Callable[..., Value]
    member: bool = False
    generic: bool = False
    without_type_guards: bool = False
    """Whether `run` checks the types itself and may be called with any value."""
    dispatched_by_value: bool = False
    """Whether values select among all overloads of the function, whatever the checker found."""


@dataclass(frozen=True, slots=True)
class Function:
    """A name and its overloads."""

    name: str
    overloads: tuple[Overload, ...]


Functions = dict[str, tuple[Overload, ...]]


def declare_overload(id: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value]) -> Overload:
    """An overload called as `name(x, y)`."""
    return Overload(id, params, result, run, False, _is_generic((*params, result)))


def declare_member_overload(
    id: str, params: tuple[Type, ...], result: Type, run: Callable[..., Value]
) -> Overload:
    """An overload called as `x.name(y)`; the first parameter is the target."""
    return Overload(id, params, result, run, True, _is_generic((*params, result)))


def disable_type_guards(overload: Overload) -> Overload:
    """The same overload, for a function that checks the types of its arguments itself."""
    return replace(overload, without_type_guards=True)


def declare_function(name: str, *overloads: Overload) -> Function:
    """A function and its overloads, in the order they are tried."""
    return Function(name, overloads)


def dispatch_by_value(declared: Function) -> Function:
    """The same function, with overloads that are selected by values alone."""
    return Function(
        declared.name, tuple(replace(one, dispatched_by_value=True) for one in declared.overloads)
    )


def collect_functions(libraries: Iterable[Iterable[Function]]) -> Functions:
    """The functions of some libraries by name; libraries may add overloads to each other's functions."""
    result: Functions = {}
    for library in libraries:
        for declared in library:
            result[declared.name] = result.get(declared.name, ()) + declared.overloads
    return result


def _is_generic(types: tuple[Type, ...]) -> bool:
    return any(one.kind is TypeKind.VARIABLE or _is_generic(one.params) for one in types)
