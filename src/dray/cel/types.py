"""The types of expressions, and how they are written.

A type is a kind, a name and parameters: `list(int)`, `map(string, dyn)`, `optional_type(bool)`. Type
variables (`TypeKind.VARIABLE`) stand for types that unification has yet to find. `dyn` and
`google.protobuf.Any` are both "known only at run time"; they differ in what may be iterated and in how they
are spelled.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class TypeKind(Enum):
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
    """The type of a node with an issue; it fits everywhere, so that each issue is reported once."""
    VARIABLE = auto()


class Type:
    """One type; equal to another with the same kind, name and parameters.

    `weight` is the number of names in it, to keep hostile types small. `is_dyn`: known only at run
    time, or the node has an issue. `is_open`: that, or unification has yet to find it.
    """

    __slots__ = ("is_dyn", "is_open", "kind", "name", "params", "weight")

    # Types are made by the thousand when expressions are checked, which is why this is no dataclass.
    def __init__(self, kind: TypeKind, name: str, params: tuple[Type, ...] = ()) -> None:
        self.kind: Final = kind
        self.name: Final = name
        self.params: Final = params
        self.weight: Final[int] = 1 + sum([param.weight for param in params]) if params else 1
        self.is_dyn: Final = kind is TypeKind.DYN or kind is TypeKind.ANY or kind is TypeKind.ERROR
        self.is_open: Final = self.is_dyn or kind is TypeKind.VARIABLE

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Type):
            return NotImplemented
        return self.kind is other.kind and self.name == other.name and self.params == other.params

    def __hash__(self) -> int:
        return hash((self.name, self.params))

    def __str__(self) -> str:
        return _format_type(self, _FULL_NAMES)

    def __repr__(self) -> str:
        return f"Type({self})"


BOOL: Final = Type(TypeKind.BOOL, "bool")
INT: Final = Type(TypeKind.INT, "int")
UINT: Final = Type(TypeKind.UINT, "uint")
DOUBLE: Final = Type(TypeKind.DOUBLE, "double")
STRING: Final = Type(TypeKind.STRING, "string")
BYTES: Final = Type(TypeKind.BYTES, "bytes")
NULL: Final = Type(TypeKind.NULL, "null_type")
DURATION: Final = Type(TypeKind.DURATION, "google.protobuf.Duration")
TIMESTAMP: Final = Type(TypeKind.TIMESTAMP, "google.protobuf.Timestamp")
DYN: Final = Type(TypeKind.DYN, "dyn")
ANY: Final = Type(TypeKind.ANY, "google.protobuf.Any")
ERROR: Final = Type(TypeKind.ERROR, "!error!")

QUANTITY: Final = Type(TypeKind.STRUCT, "kubernetes.Quantity")
SEMVER: Final = Type(TypeKind.STRUCT, "kubernetes.Semver")
URL: Final = Type(TypeKind.STRUCT, "kubernetes.URL")
FORMAT: Final = Type(TypeKind.STRUCT, "kubernetes.NamedFormat")
IP: Final = Type(TypeKind.OPAQUE, "net.IP")
CIDR: Final = Type(TypeKind.OPAQUE, "net.CIDR")

OPTIONAL_NAME: Final = "optional_type"
PARAMETRIC_KINDS: Final = frozenset({TypeKind.LIST, TypeKind.MAP, TypeKind.OPAQUE, TypeKind.TYPE})
"""The kinds that may have parameters."""

# cel-go has two ways to write a type: full names where a type stands alone, short ones in messages.
_FULL_NAMES: dict[str, str] = {}
_SHORT_NAMES: dict[str, str] = {
    DURATION.name: "duration",
    TIMESTAMP.name: "timestamp",
    ANY.name: "any",
    NULL.name: "null",
}


def make_list_type(item: Type) -> Type:
    """`list(item)`."""
    return Type(TypeKind.LIST, "list", (item,))


def make_map_type(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(TypeKind.MAP, "map", (key, value))


def make_optional_type(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type(TypeKind.OPAQUE, OPTIONAL_NAME, (value,))


def make_type_type(target: Type) -> Type:
    """The type of a type."""
    return Type(TypeKind.TYPE, "type", (target,))


def make_type_variable(name: str) -> Type:
    """A type that unification will find."""
    return Type(TypeKind.VARIABLE, name)


def is_optional(candidate: Type) -> bool:
    """Whether it is `optional_type(...)`."""
    return candidate.kind is TypeKind.OPAQUE and candidate.name == OPTIONAL_NAME


def format_type(candidate: Type) -> str:
    """The type as messages of the checker write it: `any`, `duration`, `map(string, any)`."""
    return _format_type(candidate, _SHORT_NAMES)


def format_call_types(arguments: tuple[Type, ...], member: bool) -> str:
    """The types of a call: `(int, string)`, or `string.(int)` for a member function."""
    words = [format_type(argument) for argument in arguments]
    return f"{words[0]}.({', '.join(words[1:])})" if member else f"({', '.join(words)})"


def _format_type(candidate: Type, names: dict[str, str]) -> str:
    name = names.get(candidate.name, candidate.name)
    if not candidate.params:
        return name
    return f"{name}({', '.join(_format_type(param, names) for param in candidate.params)})"
