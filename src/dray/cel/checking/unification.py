"""Which types fit where, and what type variables turn out to be.

Theory of operation: a `Substitution` maps type variables to types. `fits` asks whether a value of one type
may stand where another is wanted, and notes what it had to assume about variables; `mark` and `rewind` take
assumptions back. `dyn` fits everywhere. When a variable meets two types that fit each other, it becomes the
more general one.

Types can share parts through variables and unfold to something enormous; the steps of one expression are
counted, and beyond the cap it is `ComplexityError`.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Final

from dray.cel.types import DYN, WRAPPING, Kind, Type, variable

_NULLABLE: Final = frozenset({Kind.NULL, Kind.STRUCT, Kind.OPAQUE, Kind.DURATION, Kind.TIMESTAMP})
_MAX_STEPS: Final = 200_000


class ComplexityError(Exception):
    """The types of an expression take too long to compare."""


class Substitution:
    """What type variables stand for, with a way back."""

    __slots__ = ("_bound", "_fresh", "_steps", "_trail")

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._fresh = 0
        self._steps = 0

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise ComplexityError

    def fresh(self) -> Type:
        """A type variable nobody has used."""
        self._fresh += 1
        return _numbered(self._fresh)

    def renamed(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Types of a declaration with their variables replaced by fresh ones, the same for the same name."""
        names: dict[str, Type] = {}
        return tuple(self._renamed(one, names) for one in types)

    def _renamed(self, one: Type, names: dict[str, Type]) -> Type:
        if one.kind is Kind.VARIABLE:
            if one.name not in names:
                names[one.name] = self.fresh()
            return names[one.name]
        if not one.params:
            return one
        return Type(one.kind, one.name, tuple(self._renamed(param, names) for param in one.params))

    def mark(self) -> int:
        """A place to come back to."""
        return len(self._trail)

    def rewind(self, mark: int) -> None:
        """Forget every assumption made since the mark."""
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before

    def resolved(self, one: Type, loose: bool = False) -> Type:
        """The type with every known variable replaced; with `loose`, unknown ones become `dyn`."""
        while one.kind is Kind.VARIABLE:
            found = self._bound.get(one.name)
            if found is None:
                return DYN if loose else one
            one = found
        if not one.params:
            return one
        self._step()
        params = tuple([self.resolved(param, loose) for param in one.params])
        same = all(map(operator.is_, params, one.params))
        return one if same else Type(one.kind, one.name, params)

    def fits(self, wanted: Type, given: Type) -> bool:
        """Whether `given` may stand where `wanted` is expected."""
        if wanted is given:
            return True
        self._step()
        if wanted.is_open or given.is_open:
            if wanted.kind is Kind.VARIABLE:
                return self._assume(wanted, given)
            return self._assume(given, wanted) if given.kind is Kind.VARIABLE else True
        if given.kind is Kind.NULL:
            return wanted.kind in _NULLABLE
        if wanted.kind is not given.kind or wanted.name != given.name:
            return False
        if wanted.kind is Kind.TYPE or wanted.kind not in WRAPPING:
            return True
        pairs = zip(wanted.params, given.params, strict=True)
        return all(self.fits(one, other) for one, other in pairs)

    def _assume(self, unknown: Type, one: Type) -> bool:
        unknown = self._last(unknown)
        if one.kind is Kind.VARIABLE:
            one = self._last(one)
            found = self._bound.get(one.name)
            if one.name == unknown.name:
                return True
            if found is None:
                return self._bound_to(one, unknown)
            one = found
        known = self._bound.get(unknown.name)
        if known is None:
            return self._bound_to(unknown, one)
        if known is one:
            return True
        if not self.fits(known, one):
            return False
        known, one = self.resolved(known), self.resolved(one)
        if not _covers(known, one) and not self._occurs(unknown, one):
            self._bind(unknown.name, one)
        return True

    def _last(self, one: Type) -> Type:
        """The end of a chain of variables that stand for each other."""
        while True:
            found = self._bound.get(one.name)
            if found is None or found.kind is not Kind.VARIABLE:
                return one
            one = found

    def _bound_to(self, unknown: Type, one: Type) -> bool:
        if self._occurs(unknown, one):
            return False
        self._bind(unknown.name, one)
        return True

    def _bind(self, name: str, one: Type) -> None:
        self._trail.append((name, self._bound.get(name)))
        self._bound[name] = one

    def _occurs(self, unknown: Type, one: Type) -> bool:
        while one.kind is Kind.VARIABLE:
            if one.name == unknown.name:
                return True
            found = self._bound.get(one.name)
            if found is None:
                return False
            one = found
        self._step()
        return any(self._occurs(unknown, param) for param in one.params)

    def joined(self, one: Type | None, other: Type) -> Type:
        """The type of a list that holds both; `dyn` when they have nothing in common."""
        if one is None:
            return other
        mark = self.mark()
        if self.fits(one, other):
            return _more_general(one, other)
        self.rewind(mark)
        return DYN


@lru_cache(maxsize=256)
def _numbered(number: int) -> Type:
    return variable(f"_{number}")


def _more_general(one: Type, other: Type) -> Type:
    return one if _covers(one, other) else other


def _covers(one: Type, other: Type) -> bool:
    """Whether the first type says no more than the second."""
    if one.is_dyn or one.kind is Kind.VARIABLE:
        return True
    if other.is_dyn or other.kind is Kind.VARIABLE:
        return False
    if one.kind is not other.kind or one.name != other.name:
        return False
    return all(_covers(left, right) for left, right in zip(one.params, other.params, strict=False))
