"""Run-time values: which Python type represents which CEL type, map keys, sizes and iteration.

Theory of operation: a CEL type is recognised by the exact Python type, never by `isinstance`: `bool` is no
`int`, and `UInt` is no `int` either.

    null bool int uint double string bytes    None bool int UInt float str bytes
    list map                                  tuple dict (OpenMap)
    type optional duration timestamp          TypeName Optional Duration Timestamp
    quantity semver                           Quantity Version

Keys of maps are strings and whole numbers as they are; Python takes `True` for `1`, so booleans become
`BoolKey`. A `dict` is read through `find_map_key` and `iterate_keys` only.

Rules for this file: nothing here looks into a Python object that is not in the table; an expression can
never reach an attribute of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final, TypeAlias

from dray.cel.faults import BudgetError, CelError
from dray.cel.times import Duration, Timestamp
from dray.values.quantity import Quantity
from dray.values.semver import Version

# The exact Python types above. What may be done with one is decided by its type at run time, as CEL wants it.
Value: TypeAlias = Any

MAX_ITEMS: Final = 1_000_000
"""Longer lists and maps are not built: traversing them would exceed every cost limit."""
MAX_TEXT_LENGTH: Final = 10_000_000
"""The same for characters, of which ten cost one."""


class UInt(int):
    """An unsigned number. Equal to the same `int`, but of another type."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class TypeName:
    """A type as a value: `type(1)` and the word `int`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeName) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"TypeName({self.name!r})"


class OptionalValue:
    """A value that may be missing; `NONE` is the missing one."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "optional.none()" if self is NONE else f"optional.of({self.value!r})"


NONE: Final = OptionalValue(None)


class OpenMap(dict[str, Value]):
    """A map with a value for every key: that of a missing key is an empty map.

    Its size is that of its entries, and `in` finds only those.
    """

    __slots__ = ()

    def __missing__(self, key: str) -> Value:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[Any, Value]] = {}


class BoolKey(Enum):
    """A boolean as the key of a map."""

    FALSE = False
    TRUE = True


_BOOL_KEYS: Final = (BoolKey.FALSE, BoolKey.TRUE)

TYPE_NAMES_BY_CLASS: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    tuple: "list",
    dict: "map",
    OpenMap: "map",
    TypeName: "type",
    OptionalValue: "optional_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Quantity: "kubernetes.Quantity",
    Version: "kubernetes.Semver",
}
"""The CEL name of each Python type; a library that brings a type of its own adds it."""

MAP_TYPES: Final[frozenset[type]] = frozenset((dict, OpenMap))
SIZED_TYPES: Final[frozenset[type]] = MAP_TYPES | {str, bytes, tuple}

# How cel-go names these types in one message that people may search for.
_GO_NAMES: dict[type, str] = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    Quantity: "cel.Quantity",
    Version: "cel.Semver",
}


def get_type_name(value: Value) -> str:
    """The CEL name of the type of a value."""
    return TYPE_NAMES_BY_CLASS[type(value)]


def join_type_names(*values: Value) -> str:
    """The CEL names of the types of some arguments, as messages list them."""
    return ", ".join(TYPE_NAMES_BY_CLASS[type(value)] for value in values)


def get_cost_size(value: Value) -> int:
    """The size as the cost of a call counts it: length, or one for everything without."""
    kind = type(value)
    if kind in SIZED_TYPES:
        return len(value)
    if kind is OptionalValue and value is not NONE:
        return get_cost_size(value.value)
    return 1


def to_map_key(value: Value) -> Any:
    """The dictionary key of a CEL value; an error for what cannot be a key."""
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return _BOOL_KEYS[value]
    raise CelError(f"unsupported key type: {get_type_name(value)}")


def find_map_key(mapping: dict[Any, Value], value: Value) -> Any:
    """The dictionary key under which a map may hold a value; None for what is never a key.

    Looking up `1.0` finds `1`: numbers are compared across their types.
    """
    kind = type(value)
    if kind is str or kind is int or kind is UInt:
        return value
    if kind is bool:
        return _BOOL_KEYS[value]
    if kind is float and value.is_integer():
        return int(value)
    return None


def iterate_keys(mapping: dict[Any, Value]) -> Iterator[Value]:
    """The keys of a map as CEL values, in the order they were put in."""
    return (key.value if type(key) is BoolKey else key for key in mapping)


def iterate_items(value: Value) -> Iterator[Value]:
    """What a macro with one variable iterates over: the items of a list, the keys of a map."""
    kind = type(value)
    if kind is tuple:
        return iter(value)
    if kind in MAP_TYPES:
        return iterate_keys(value)
    raise make_not_iterable_error(value)


def iterate_pairs(value: Value) -> Iterator[tuple[Value, Value]]:
    """What a macro with two variables iterates over: index and item, or key and value."""
    kind = type(value)
    if kind is tuple:
        return enumerate(value)
    if kind in MAP_TYPES:
        return zip(iterate_keys(value), value.values(), strict=True)
    raise make_not_iterable_error(value)


def make_not_iterable_error(value: Value) -> CelError:
    """The error of iterating over a value that is neither list nor map."""
    name = _GO_NAMES.get(type(value), get_type_name(value))
    return CelError(f"got '{name}', expected iterable type")


def check_size(count: int, limit: int = MAX_ITEMS) -> int:
    """The count, unless something of that size may not be built."""
    if count > limit:
        raise BudgetError
    return count
