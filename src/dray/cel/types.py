"""The types an expression can have, and how they are written.

A type is a kind, a name and parameters: `list(int)`, `map(string, dyn)`, `optional_type(bool)`. Type
variables (`Kind.VARIABLE`) stand for types that unification has yet to find. `dyn` and `google.protobuf.Any`
are both "known only at run time"; they differ in what may be iterated and in how they are spelled.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Kind(Enum):
    """What sort of type it is."""

    BOOL = auto()
    INT = auto()
    UINT = auto()
    DOUBLE = auto()
    STRING = auto()
    BYTES = auto()
    NULL = auto()
    DURATION = auto()
    TIMESTAMP = auto()
    LIST = auto()
    MAP = auto()
    STRUCT = auto()
    """A named thing with fields or with member functions only."""
    OPAQUE = auto()
    """A named thing without fields, possibly with parameters."""
    TYPE = auto()
    DYN = auto()
    ANY = auto()
    ERROR = auto()
    """The type of what was already complained about; it fits everywhere, so that nobody complains twice."""
    VARIABLE = auto()


class Type:
    """One type; equal to another with the same kind, name and parameters.

    `weight` is the number of names in it, to keep hostile types small. `is_dyn`: only the run time knows what
    it is, or it was already complained about. `is_open`: that, or unification has yet to find out.
    """

    __slots__ = ("is_dyn", "is_open", "kind", "name", "params", "weight")

    # Types are made by the thousand when expressions are checked, which is why this is no dataclass.
    def __init__(self, kind: Kind, name: str, params: tuple[Type, ...] = ()) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.params: Final = params
        self.weight: Final[int] = 1 + sum([param.weight for param in params]) if params else 1
        self.is_dyn: Final = kind is Kind.DYN or kind is Kind.ANY or kind is Kind.ERROR
        self.is_open: Final = self.is_dyn or kind is Kind.VARIABLE

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Type):
            return NotImplemented
        return self.kind is other.kind and self.name == other.name and self.params == other.params

    def __hash__(self) -> int:
        return hash((self.name, self.params))

    def __str__(self) -> str:
        return _written(self, _FULL)

    def __repr__(self) -> str:
        return f"Type({self})"


BOOL: Final = Type(Kind.BOOL, "bool")
INT: Final = Type(Kind.INT, "int")
UINT: Final = Type(Kind.UINT, "uint")
DOUBLE: Final = Type(Kind.DOUBLE, "double")
STRING: Final = Type(Kind.STRING, "string")
BYTES: Final = Type(Kind.BYTES, "bytes")
NULL: Final = Type(Kind.NULL, "null_type")
DURATION: Final = Type(Kind.DURATION, "google.protobuf.Duration")
TIMESTAMP: Final = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
DYN: Final = Type(Kind.DYN, "dyn")
ANY: Final = Type(Kind.ANY, "google.protobuf.Any")
ERROR: Final = Type(Kind.ERROR, "!error!")

QUANTITY: Final = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(Kind.STRUCT, "kubernetes.Semver")
URL: Final = Type(Kind.STRUCT, "kubernetes.URL")
FORMAT: Final = Type(Kind.STRUCT, "kubernetes.NamedFormat")
IP: Final = Type(Kind.OPAQUE, "net.IP")
CIDR: Final = Type(Kind.OPAQUE, "net.CIDR")

OPTIONAL_NAME: Final = "optional_type"
WRAPPING: Final = frozenset({Kind.LIST, Kind.MAP, Kind.OPAQUE, Kind.TYPE})
"""The kinds that may have parameters."""

# cel-go has two ways to write a type: full names where a type stands alone, short ones in messages.
_FULL: dict[str, str] = {}
_SHORT: dict[str, str] = {
    DURATION.name: "duration",
    TIMESTAMP.name: "timestamp",
    ANY.name: "any",
    NULL.name: "null",
}


def list_of(item: Type) -> Type:
    """`list(item)`."""
    return Type(Kind.LIST, "list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(Kind.MAP, "map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type(Kind.OPAQUE, OPTIONAL_NAME, (value,))


def type_of(target: Type) -> Type:
    """The type of a type."""
    return Type(Kind.TYPE, "type", (target,))


def variable(name: str) -> Type:
    """A type that unification will find."""
    return Type(Kind.VARIABLE, name)


def is_optional(candidate: Type) -> bool:
    """Whether it is `optional_type(...)`."""
    return candidate.kind is Kind.OPAQUE and candidate.name == OPTIONAL_NAME


def spelled(candidate: Type) -> str:
    """The type as messages of the checker write it: `any`, `duration`, `map(string, any)`."""
    return _written(candidate, _SHORT)


def call_spelled(arguments: tuple[Type, ...], member: bool) -> str:
    """The types of a call: `(int, string)`, or `string.(int)` for a member function."""
    words = [spelled(argument) for argument in arguments]
    return f"{words[0]}.({', '.join(words[1:])})" if member else f"({', '.join(words)})"


def _written(candidate: Type, names: dict[str, str]) -> str:
    name = names.get(candidate.name, candidate.name)
    if not candidate.params:
        return name
    return f"{name}({', '.join(_written(param, names) for param in candidate.params)})"
