"""Unification: which types are assignable to which, and what type variables stand for.

Theory of operation: a `Substitution` maps type variables to types. `is_assignable` answers whether a value of
one type is allowed where another is expected, and records what it assumes about variables; `mark` and
`rewind` undo assumptions. `dyn` fits everywhere. A variable that meets two types that fit each other becomes
the more general one.

Types can share parts through variables and expand to an enormous size; the steps of one expression are
counted, and beyond the limit unification raises `ComplexityError`.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Final

from dray.cel.types import DYN, PARAMETRIC_KINDS, Type, TypeKind, make_type_variable

_NULLABLE: Final = frozenset(
    {TypeKind.NULL, TypeKind.STRUCT, TypeKind.OPAQUE, TypeKind.DURATION, TypeKind.TIMESTAMP}
)
_MAX_STEPS: Final = 200_000


class ComplexityError(Exception):
    """The types of an expression take too long to compare."""


class Substitution:
    """What type variables stand for, with an undo log."""

    __slots__ = ("_bound", "_fresh", "_steps", "_trail")

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._fresh = 0
        self._steps = 0

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ComplexityError

    def make_variable(self) -> Type:
        """A fresh type variable."""
        self._fresh += 1
        return _make_numbered_variable(self._fresh)

    def rename_variables(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Types of a declaration with their variables replaced by fresh ones, the same for the same name."""
        names: dict[str, Type] = {}
        return tuple(self._rename_variables(one, names) for one in types)

    def _rename_variables(self, one: Type, names: dict[str, Type]) -> Type:
        if one.kind is TypeKind.VARIABLE:
            if one.name not in names:
                names[one.name] = self.make_variable()
            return names[one.name]
        if not one.params:
            return one
        return Type(one.kind, one.name, tuple(self._rename_variables(param, names) for param in one.params))

    def mark(self) -> int:
        """The position in the undo log that `rewind` returns to."""
        return len(self._trail)

    def rewind(self, mark: int) -> None:
        """Forget every assumption made since the mark."""
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before

    def resolve(self, one: Type, unknown_as_dyn: bool = False) -> Type:
        """The type with every known variable replaced; with `unknown_as_dyn`, unknown ones become `dyn`."""
        while one.kind is TypeKind.VARIABLE:
            found = self._bound.get(one.name)
            if found is None:
                return DYN if unknown_as_dyn else one
            one = found
        if not one.params:
            return one
        self._count_step()
        params = tuple([self.resolve(param, unknown_as_dyn) for param in one.params])
        same = all(map(operator.is_, params, one.params))
        return one if same else Type(one.kind, one.name, params)

    def is_assignable(self, wanted: Type, given: Type) -> bool:
        """Whether `given` may stand where `wanted` is expected."""
        if wanted is given:
            return True
        self._count_step()
        if wanted.is_open or given.is_open:
            if wanted.kind is TypeKind.VARIABLE:
                return self._assume(wanted, given)
            return self._assume(given, wanted) if given.kind is TypeKind.VARIABLE else True
        if given.kind is TypeKind.NULL:
            return wanted.kind in _NULLABLE
        if wanted.kind is not given.kind or wanted.name != given.name:
            return False
        if wanted.kind is TypeKind.TYPE or wanted.kind not in PARAMETRIC_KINDS:
            return True
        pairs = zip(wanted.params, given.params, strict=True)
        return all(self.is_assignable(one, other) for one, other in pairs)

    def _assume(self, unknown: Type, one: Type) -> bool:
        unknown = self._find_last_variable(unknown)
        if one.kind is TypeKind.VARIABLE:
            one = self._find_last_variable(one)
            found = self._bound.get(one.name)
            if one.name == unknown.name:
                return True
            if found is None:
                return self._try_bind(one, unknown)
            one = found
        known = self._bound.get(unknown.name)
        if known is None:
            return self._try_bind(unknown, one)
        if known is one:
            return True
        if not self.is_assignable(known, one):
            return False
        known, one = self.resolve(known), self.resolve(one)
        if not _covers(known, one) and not self._occurs(unknown, one):
            self._bind(unknown.name, one)
        return True

    def _find_last_variable(self, one: Type) -> Type:
        """The end of a chain of variables that stand for each other."""
        while True:
            found = self._bound.get(one.name)
            if found is None or found.kind is not TypeKind.VARIABLE:
                return one
            one = found

    def _try_bind(self, unknown: Type, one: Type) -> bool:
        if self._occurs(unknown, one):
            return False
        self._bind(unknown.name, one)
        return True

    def _bind(self, name: str, one: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = one

    def _occurs(self, unknown: Type, one: Type) -> bool:
        while one.kind is TypeKind.VARIABLE:
            if one.name == unknown.name:
                return True
            found = self._bound.get(one.name)
            if found is None:
                return False
            one = found
        self._count_step()
        return any(self._occurs(unknown, param) for param in one.params)

    def join_types(self, one: Type | None, other: Type) -> Type:
        """The type of a list that holds both; `dyn` when they have nothing in common."""
        if one is None:
            return other
        mark = self.mark()
        if self.is_assignable(one, other):
            return _pick_more_general(one, other)
        self.rewind(mark)
        return DYN


@lru_cache(maxsize=256)
def _make_numbered_variable(number: int) -> Type:
    return make_type_variable(f"_{number}")


def _pick_more_general(one: Type, other: Type) -> Type:
    return one if _covers(one, other) else other


def _covers(one: Type, other: Type) -> bool:
    """Whether the first type says no more than the second."""
    if one.is_dyn or one.kind is TypeKind.VARIABLE:
        return True
    if other.is_dyn or other.kind is TypeKind.VARIABLE:
        return False
    if one.kind is not other.kind or one.name != other.name:
        return False
    return all(_covers(left, right) for left, right in zip(one.params, other.params, strict=False))
