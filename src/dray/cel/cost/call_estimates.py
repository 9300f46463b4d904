"""The worst a single call can cost, and how large its result can be; the counterpart of `costs`.

A rule gets what is known about target and arguments. It may decline (`None`), and the next table is asked:
first what the extension libraries say by overload, then what Kubernetes says by name, then what cel-go says
by overload. A call that no table knows costs one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel import types as t
from dray.cel.cost.call_costs import LIST, PER_CHARACTER, PER_PATTERN_CHARACTER
from dray.cel.cost.sizes import UNBOUNDED, UNKNOWN, Size, added, fixed, multiplied, plus, scaled, times
from dray.cel.syntax.ast import Literal, Node
from dray.cel.types import Kind, Type


class Seen(NamedTuple):
    """What is known about an argument; `items` is the size of what a list holds."""

    node: Node
    type: Type
    size: Size
    items: Size | None


class Estimate(NamedTuple):
    """The worst cost of a call without its arguments, and the size of its result."""

    cost: int
    size: Size | None = None


Rule = Callable[[Seen | None, tuple[Seen, ...]], Estimate | None]
_Args = tuple[Seen, ...]

# The longest pattern behind a named format, and the longest name of one.
_FORMAT_PATTERN: Final = 128
_FORMAT_NAME: Final = 64
# The bytes of an IPv6 address.
_OCTETS: Final = 16


def _characters(count: int) -> int:
    return scaled(count, PER_CHARACTER)


def _by_target(target: Seen | None, _: _Args) -> Estimate | None:
    if target is None:
        return None
    return Estimate(_characters(target.size.high), target.size)


def _by_first(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(_characters(args[0].size.high)) if args else None


def _by_first_sized(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(_characters(args[0].size.high), args[0].size)


def _traversal(target: Seen | None, _: _Args) -> Estimate | None:
    if target is None:
        return None
    if target.items is None:
        return Estimate(_characters(target.size.high))
    each = 1
    if target.type.params[0].kind in (Kind.STRING, Kind.BYTES):
        each = plus(1, _characters(target.items.high))
    return Estimate(times(target.size.high, each))


def _includes(target: Seen | None, _: _Args) -> Estimate | None:
    return None if target is None else Estimate(target.size.high)


def _replace(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None or len(args) < 2:
        return None
    text, old, new = target.size, args[0].size, args[1].size
    if old.low == 0:
        high = plus(times(plus(text.high, 1), new.high), text.high)
    elif new.high <= old.low:
        high = text.high
    else:
        high = times(math.ceil(text.high / old.low), new.high)
    return Estimate(scaled(text.high, 2 * PER_CHARACTER), Size(0, high))


def _split(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None:
        return None
    limit = args[1].node if len(args) > 1 else None
    high = target.size.high
    if isinstance(limit, Literal) and type(limit.value) is int:
        high = limit.value % 2**64
    return Estimate(scaled(target.size.high, 2 * PER_CHARACTER), Size(0, high))


def _join(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None:
        return None
    size = fixed(0) if target.items is None else multiplied(target.size, target.items)
    if args:
        gaps = Size(max(target.size.low - 1, 0), max(target.size.high - 1, 0))
        size = added(size, multiplied(args[0].size, gaps))
    return Estimate(_characters(size.high), size)


def _search(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None or not args:
        return None
    text = _characters(plus(target.size.high, 1))
    pattern = scaled(args[0].size.high, PER_PATTERN_CHARACTER)
    return Estimate(times(text, pattern), Size(0, target.size.high))


def _validation(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None:
        return None
    return Estimate(scaled(_characters(args[0].size.high), _FORMAT_PATTERN * PER_PATTERN_CHARACTER))


def _ip(target: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(1) if target is not None else _by_first(target, args)


def _canonical(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(scaled(args[0].size.high, 2 * PER_CHARACTER))


def _holds_ip(target: Seen | None, args: _Args) -> Estimate | None:
    text = _characters(args[0].size.high) if args[0].type.kind is Kind.STRING else 0
    return Estimate(plus(_characters(2 * _OCTETS), text))


def _holds_network(target: Seen | None, args: _Args) -> Estimate | None:
    inside = _holds_ip(target, args)
    return Estimate(plus(inside.cost, _characters(_OCTETS), 1)) if inside is not None else None


def _same_type(_: Seen | None, args: _Args) -> Estimate | None:
    """Equality of the types Kubernetes adds does not depend on their size."""
    left, right = args
    if left.type != right.type:
        return None
    if left.type == t.FORMAT:
        return Estimate(_characters(_FORMAT_NAME))
    return Estimate(1) if left.type in (t.IP, t.CIDR, t.QUANTITY, t.SEMVER, t.URL) else None


def _shorter(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(_characters(min(args[0].size.high, args[1].size.high)))


def _both(_: Seen | None, args: _Args) -> Estimate | None:
    size = added(args[0].size, args[1].size)
    return Estimate(_characters(size.high), size)


def _both_lists(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(1, added(args[0].size, args[1].size))


def _contains(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None:
        return None
    return Estimate(times(_characters(target.size.high), _characters(args[0].size.high)))


def _logical(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(0)


def _new_list(size: Size, factor: float = 1.0) -> Estimate:
    return Estimate(plus(scaled(size.high, factor), 1, LIST), size)


def _whole(seen: Seen, otherwise: int) -> int:
    """The value of a literal that is not negative, or what to assume of anything else."""
    literal = seen.node if isinstance(seen.node, Literal) else None
    return max(literal.value, 0) if literal is not None and type(literal.value) is int else otherwise


def _slice(target: Seen | None, args: _Args) -> Estimate | None:
    if target is None:
        return None
    start, end = _whole(args[0], 0), _whole(args[1], target.size.high)
    return _new_list(fixed(max(end - start, 0)))


def _range(_: Seen | None, args: _Args) -> Estimate | None:
    return _new_list(fixed(_whole(args[0], UNBOUNDED)))


def _reverse(target: Seen | None, _: _Args) -> Estimate | None:
    return None if target is None else _new_list(target.size)


def _flatten(target: Seen | None, args: _Args) -> Estimate | None:
    levels = _whole(args[0], UNBOUNDED) if args else 1
    return None if target is None else _new_list(target.size, float(levels))


def _self_compared(factor: float) -> Rule:
    def rule(target: Seen | None, _: _Args) -> Estimate | None:
        return None if target is None else _new_list(multiplied(target.size, target.size), factor)

    return rule


def _sets(factor: int) -> Rule:
    def rule(_: Seen | None, args: _Args) -> Estimate | None:
        return Estimate(plus(times(times(args[0].size.high, args[1].size.high), factor), 1))

    return rule


def _format(target: Seen | None, _: _Args) -> Estimate | None:
    return None if target is None else Estimate(_characters(target.size.high), UNKNOWN)


def _quote(_: Seen | None, args: _Args) -> Estimate | None:
    size = args[0].size
    return Estimate(_characters(size.high), Size(plus(size.low, 2), plus(times(size.high, 2), 2)))


def _to_bytes(_: Seen | None, args: _Args) -> Estimate | None:
    size = args[0].size
    return Estimate(_characters(size.high), Size(size.low, times(size.high, 4)))


def _to_text(_: Seen | None, args: _Args) -> Estimate | None:
    size = args[0].size
    return Estimate(_characters(size.high), Size(size.low // 4, size.high))


def _members(_: Seen | None, args: _Args) -> Estimate | None:
    return Estimate(args[1].size.high)


RULES_BY_EXTENSION: Final[dict[str, Rule]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _self_compared(2.0),
    **{f"list_{kind}_sort": _self_compared(2.0) for kind in ("int", "uint", "double", "bool")},
    **{f"list_{kind.name}_sort": _self_compared(2.0) for kind in (t.DURATION, t.TIMESTAMP)},
    **{f"list_{kind}_sort": _self_compared(2.0 + PER_CHARACTER) for kind in ("string", "bytes")},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
RULES_BY_NAME: Final[dict[str, Rule]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    **dict.fromkeys(("includes", "include"), _includes),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _by_target),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _by_first),
    **dict.fromkeys(("find", "findAll"), _search),
    "url": _by_first_sized,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": _ip,
    "ip.isCanonical": _canonical,
    "containsIP": _holds_ip,
    "containsCIDR": _holds_network,
    "validate": _validation,
    "_==_": _same_type,
}
RULES_BY_ID: Final[dict[str, Rule]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _by_first),
    **{
        f"{word}_{kind}": _shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _shorter,
    "not_equals": _shorter,
    "logical_and": _logical,
    "logical_or": _logical,
    "add_string": _both,
    "add_bytes": _both,
    "add_list": _both_lists,
    "contains_string": _contains,
    "matches_string": _search,
    "string_format": _format,
    "strings_quote": _quote,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "in_list": _members,
}
