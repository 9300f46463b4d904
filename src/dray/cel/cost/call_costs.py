"""What a call costs when it runs.

Theory of operation: the unit is that of cel-go and Kubernetes, so that an expression is refused here exactly
when it is refused there. Most calls cost one. The tables below are what costs something else; a rule gets the
arguments and the result (`None` before it is known, and after an error) and returns the cost. `price` picks
the rule of a call when it is planned: by overload where that is known for sure, else by name. What does not
depend on the result is charged before the function runs.

Surcharges are ours: some calls cost one in Kubernetes however much they have to do, because Go hardly
notices. Python does. They begin where no device and no sane expression reaches.

Rules for this file: figures only; what a function computes is in `library`, the worst case in `estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel.declarations import Overload
from dray.cel.equality import STRICT
from dray.cel.library.named_formats import NamedFormat
from dray.cel.library.network import Cidr
from dray.cel.regex import heft
from dray.cel.values import MAPS, Value, size

IDENT: Final = 1
LIST: Final = 10
MAP: Final = 30
PER_CHARACTER: Final = 0.1
PER_PATTERN_CHARACTER: Final = 0.25

_MANY_ITEMS: Final = 64
_MANY_CHARACTERS: Final = 640
_MANY_JOINED: Final = 1000
_LIGHT_PATTERN: Final = 100

Tracker = Callable[[tuple[Value, ...], Value], int]

# Floats, not `(n + 9) // 10`: Kubernetes rounds up what a float makes of it, and 70 characters cost 8.
_SMALL: Final = tuple(math.ceil(count * PER_CHARACTER) for count in range(256))
_SMALL_FLOOR: Final = tuple(int(count * PER_CHARACTER) for count in range(256))


def characters(count: int) -> int:
    """The cost of walking over so many characters."""
    return _SMALL[count] if count < 256 else math.ceil(count * PER_CHARACTER)


class Price(NamedTuple):
    """What a call costs: a flat part and one that depends on the arguments, before; on the result, after."""

    flat: int
    before: Tracker | None = None
    after: Tracker | None = None

    def unpaid(self, args: tuple[Value, ...]) -> int:
        """The whole price of a call that failed; a failed argument is given as `None`."""
        before = 0 if self.before is None else self.before(args, None)
        return self.flat + before + (0 if self.after is None else self.after(args, None))


def price(name: str, overloads: tuple[Overload, ...], fresh_pattern: bool = False) -> Price:
    """The price of a call, as far as it is known when the call is planned.

    A pattern that is no constant is compiled when the call runs, and costs more when it is a heavy one.
    """
    id = overloads[0].id if len(overloads) == 1 else ""
    rule = _BY_EXTENSION.get(id) or _BY_NAME.get(name) or _BY_ID.get(id)
    extra = _heavy_pattern if fresh_pattern else _SURCHARGES.get(name)
    rules = [one for one in (rule, extra) if one is not None]
    before, after = ([one for one in rules if (one in _LATE) is late] for late in (False, True))
    return Price(1 if rule is None else 0, _together(before), _together(after))


def _together(rules: list[Tracker]) -> Tracker | None:
    if len(rules) < 2:
        return rules[0] if rules else None
    return lambda args, result: sum(rule(args, result) for rule in rules)


def equality(left: Value, right: Value) -> int:
    """The cost of `==` and `!=`: the shorter of the two is walked over."""
    if type(left) in STRICT:
        return 1
    return characters(min(size(left), size(right)))


def _text_of_first(args: tuple[Value, ...], _: Value) -> int:
    return characters(size(args[0]))


def _text_of_second(args: tuple[Value, ...], _: Value) -> int:
    return characters(size(args[1]))


def _first_twice(args: tuple[Value, ...], _: Value) -> int:
    return math.ceil(size(args[0]) * 2 * PER_CHARACTER)


def _result_twice(_: tuple[Value, ...], result: Value) -> int:
    return math.ceil(size(result) * 2 * PER_CHARACTER)


def _pattern(text_size: int, pattern_size: int) -> int:
    return math.ceil((1.0 + text_size) * PER_CHARACTER) * math.ceil(pattern_size * PER_PATTERN_CHARACTER)


def _search(args: tuple[Value, ...], _: Value) -> int:
    return _pattern(size(args[0]), size(args[1]))


def _long_search(args: tuple[Value, ...], _: Value) -> int:
    """`matches(text, pattern)` costs one in Kubernetes, and here as long as the text is short."""
    return _search(args, None) if size(args[0]) > _MANY_CHARACTERS else 1


def _validation(args: tuple[Value, ...], _: Value) -> int:
    named = args[0]
    return _pattern(size(args[1]), named.pattern_size) if type(named) is NamedFormat else 1


def _traversal(args: tuple[Value, ...], _: Value) -> int:
    return _walk(args[0], 0)


def _walk(value: Value, depth: int) -> int:
    kind = type(value)
    if kind is str:
        count = len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        return _SMALL_FLOOR[count] if count < 256 else int(count * PER_CHARACTER)
    if kind is bytes:
        return int(len(value) * PER_CHARACTER)
    if depth > 50:
        return 1
    if kind is tuple:
        return sum([_walk(item, depth + 1) for item in value])
    if kind in MAPS:
        return sum(_walk(key, depth + 1) + _walk(item, depth + 1) for key, item in value.items())
    return 1


def _contains(args: tuple[Value, ...], _: Value) -> int:
    return characters(size(args[0])) * characters(size(args[1]))


def _octets(value: Value) -> int:
    return value.octets if type(value) is Cidr else 1


def _holds_ip(args: tuple[Value, ...], _: Value) -> int:
    text = characters(len(args[1])) if type(args[1]) is str else 0
    return math.ceil((_octets(args[0]) * 2) * PER_CHARACTER) + text


def _holds_network(args: tuple[Value, ...], _: Value) -> int:
    return _holds_ip(args, None) + characters(_octets(args[0])) + 1


def _new_list(count: float) -> int:
    return int(count) + 1 + LIST


def _by_result(_: tuple[Value, ...], result: Value) -> int:
    return _new_list(size(result))


def _by_input(args: tuple[Value, ...], _: Value) -> int:
    return _new_list(size(args[0]))


def _by_count(args: tuple[Value, ...], _: Value) -> int:
    return _new_list(max(args[0], 0) if type(args[0]) is int else 0)


def _flattened(args: tuple[Value, ...], _: Value) -> int:
    levels = args[1] if len(args) == 2 and type(args[1]) is int else 1
    return _new_list(size(args[0]) * max(levels, 0))


def _self_compared(args: tuple[Value, ...], _: Value) -> int:
    items = args[0]
    texts = type(items) is tuple and bool(items) and type(items[0]) in (str, bytes)
    return _new_list(size(items) ** 2 * (2.0 + PER_CHARACTER if texts else 2.0))


def _sets(factor: int) -> Tracker:
    return lambda args, _: 1 + size(args[0]) * size(args[1]) * factor


def _equality(args: tuple[Value, ...], _: Value) -> int:
    return equality(args[0], args[1])


def _shorter(args: tuple[Value, ...], _: Value) -> int:
    return characters(min(size(args[0]), size(args[1])))


def _both(args: tuple[Value, ...], _: Value) -> int:
    return math.ceil((size(args[0]) + size(args[1])) * PER_CHARACTER)


def _members(args: tuple[Value, ...], _: Value) -> int:
    return size(args[1])


def _heavy_pattern(args: tuple[Value, ...], _: Value) -> int:
    weight = heft(args[1]) if type(args[1]) is str else 0
    return weight if weight > _LIGHT_PATTERN else 0


def _long_text(args: tuple[Value, ...], _: Value) -> int:
    return characters(size(args[0])) if size(args[0]) > _MANY_CHARACTERS else 0


def _long_result(args: tuple[Value, ...], result: Value) -> int:
    return max(characters(size(result)) - _first_twice(args, None), 0)


def _long_list(args: tuple[Value, ...], _: Value) -> int:
    return size(args[1]) // 4 if size(args[1]) > _MANY_ITEMS and type(args[1]) is tuple else 0


def _many_joined(args: tuple[Value, ...], _: Value) -> int:
    count = size(args[0]) + size(args[1])
    return count // 100 if count > _MANY_JOINED and type(args[0]) is tuple else 0


def _many_flat(_: tuple[Value, ...], result: Value) -> int:
    return size(result) // 4 if size(result) > _MANY_ITEMS else 0


_SURCHARGES: Final[dict[str, Tracker]] = {
    "isURL": _long_text,
    "replace": _long_result,
    "@in": _long_list,
    "_+_": _many_joined,
    "flatten": _many_flat,
}
_LATE: Final = frozenset((_result_twice, _by_result, _long_result, _many_flat))
_BY_EXTENSION: Final[dict[str, Tracker]] = {
    "list_slice": _by_result,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "lists_range": _by_count,
    "list_reverse": _by_input,
    "list_distinct": _self_compared,
    **{f"list_{kind}_sort": _self_compared for kind in ("int", "uint", "double", "bool", "string", "bytes")},
    "list_google.protobuf.Duration_sort": _self_compared,
    "list_google.protobuf.Timestamp_sort": _self_compared,
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
_BY_NAME: Final[dict[str, Tracker]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes", "include"), _traversal
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _text_of_first),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _text_of_first
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first_twice),
    **dict.fromkeys(("find", "findAll"), _search),
    "join": _result_twice,
    "validate": _validation,
    "containsIP": _holds_ip,
    "containsCIDR": _holds_network,
    "_==_": _equality,
}
_BY_ID: Final[dict[str, Tracker]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _text_of_second),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format", "string_to_ip"),
        _text_of_first,
    ),
    **{
        f"{word}_{kind}": _shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "not_equals": _shorter,
    "in_list": _members,
    "add_string": _both,
    "add_bytes": _both,
    "matches_string": _search,
    "matches": _long_search,
    "contains_string": _contains,
}
