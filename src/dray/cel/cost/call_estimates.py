"""The worst-case cost of a single call, and the largest size of its result; the counterpart of `call_costs`.

An estimate function gets what is known about target and arguments. It may decline (`None`); then the next
table is consulted: first that of the extension libraries by overload, then that of Kubernetes by name, then
that of cel-go by overload. A call in no table costs one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel import types as t
from dray.cel.cost.call_costs import LIST_COST, PER_CHARACTER, PER_PATTERN_CHARACTER
from dray.cel.cost.sizes import (
    UNBOUNDED,
    UNKNOWN,
    SizeRange,
    add_saturating,
    add_sizes,
    make_exact_size,
    multiply_saturating,
    multiply_sizes,
    scale_saturating,
)
from dray.cel.syntax.ast import Literal, Node
from dray.cel.types import Type, TypeKind


class EstimatedArgument(NamedTuple):
    """What is known about an argument; `items` is the size of the items of a list."""

    node: Node
    type: Type
    size: SizeRange
    items: SizeRange | None


class CallEstimate(NamedTuple):
    """The worst cost of a call without its arguments, and the size of its result."""

    cost: int
    size: SizeRange | None = None


EstimateFunction = Callable[[EstimatedArgument | None, tuple[EstimatedArgument, ...]], CallEstimate | None]
_Args = tuple[EstimatedArgument, ...]

# The longest pattern behind a named format, and the longest name of one.
_FORMAT_PATTERN: Final = 128
_FORMAT_NAME: Final = 64
# The bytes of an IPv6 address.
_OCTETS: Final = 16


def _compute_text_cost(count: int) -> int:
    return scale_saturating(count, PER_CHARACTER)


def _estimate_by_target(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(_compute_text_cost(target.size.high), target.size)


def _estimate_by_first(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(_compute_text_cost(args[0].size.high)) if args else None


def _estimate_by_first_sized(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(_compute_text_cost(args[0].size.high), args[0].size)


def _estimate_traversal(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
    if target is None:
        return None
    if target.items is None:
        return CallEstimate(_compute_text_cost(target.size.high))
    each = 1
    if target.type.params[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        each = add_saturating(1, _compute_text_cost(target.items.high))
    return CallEstimate(multiply_saturating(target.size.high, each))


def _estimate_includes(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
    return None if target is None else CallEstimate(target.size.high)


def _estimate_replace(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    text, old, new = target.size, args[0].size, args[1].size
    if old.low == 0:
        high = add_saturating(multiply_saturating(add_saturating(text.high, 1), new.high), text.high)
    elif new.high <= old.low:
        high = text.high
    else:
        high = multiply_saturating(math.ceil(text.high / old.low), new.high)
    return CallEstimate(scale_saturating(text.high, 2 * PER_CHARACTER), SizeRange(0, high))


def _estimate_split(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None:
        return None
    limit = args[1].node if len(args) > 1 else None
    high = target.size.high
    if isinstance(limit, Literal) and type(limit.value) is int:
        high = limit.value % 2**64
    return CallEstimate(scale_saturating(target.size.high, 2 * PER_CHARACTER), SizeRange(0, high))


def _estimate_join(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None:
        return None
    size = make_exact_size(0) if target.items is None else multiply_sizes(target.size, target.items)
    if args:
        gaps = SizeRange(max(target.size.low - 1, 0), max(target.size.high - 1, 0))
        size = add_sizes(size, multiply_sizes(args[0].size, gaps))
    return CallEstimate(_compute_text_cost(size.high), size)


def _estimate_search(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None or not args:
        return None
    text = _compute_text_cost(add_saturating(target.size.high, 1))
    pattern = scale_saturating(args[0].size.high, PER_PATTERN_CHARACTER)
    return CallEstimate(multiply_saturating(text, pattern), SizeRange(0, target.size.high))


def _estimate_validation(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(
        scale_saturating(_compute_text_cost(args[0].size.high), _FORMAT_PATTERN * PER_PATTERN_CHARACTER)
    )


def _estimate_ip(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(1) if target is not None else _estimate_by_first(target, args)


def _estimate_canonical(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(scale_saturating(args[0].size.high, 2 * PER_CHARACTER))


def _estimate_contains_ip(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    text = _compute_text_cost(args[0].size.high) if args[0].type.kind is TypeKind.STRING else 0
    return CallEstimate(add_saturating(_compute_text_cost(2 * _OCTETS), text))


def _estimate_contains_network(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    inside = _estimate_contains_ip(target, args)
    return (
        CallEstimate(add_saturating(inside.cost, _compute_text_cost(_OCTETS), 1))
        if inside is not None
        else None
    )


def _estimate_equality(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    """Equality of the types Kubernetes adds does not depend on their size."""
    left, right = args
    if left.type != right.type:
        return None
    if left.type == t.FORMAT:
        return CallEstimate(_compute_text_cost(_FORMAT_NAME))
    return CallEstimate(1) if left.type in (t.IP, t.CIDR, t.QUANTITY, t.SEMVER, t.URL) else None


def _estimate_shorter(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(_compute_text_cost(min(args[0].size.high, args[1].size.high)))


def _estimate_both(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    size = add_sizes(args[0].size, args[1].size)
    return CallEstimate(_compute_text_cost(size.high), size)


def _estimate_both_lists(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(1, add_sizes(args[0].size, args[1].size))


def _estimate_contains(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(
        multiply_saturating(_compute_text_cost(target.size.high), _compute_text_cost(args[0].size.high))
    )


def _estimate_logical(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(0)


def _estimate_new_list(size: SizeRange, factor: float = 1.0) -> CallEstimate:
    return CallEstimate(add_saturating(scale_saturating(size.high, factor), 1, LIST_COST), size)


def _get_whole_number(argument: EstimatedArgument, otherwise: int) -> int:
    """The value of a literal that is not negative, or the default for anything else."""
    literal = argument.node if isinstance(argument.node, Literal) else None
    return max(literal.value, 0) if literal is not None and type(literal.value) is int else otherwise


def _estimate_slice(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _get_whole_number(args[0], 0), _get_whole_number(args[1], target.size.high)
    return _estimate_new_list(make_exact_size(max(end - start, 0)))


def _estimate_range(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return _estimate_new_list(make_exact_size(_get_whole_number(args[0], UNBOUNDED)))


def _estimate_reverse(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
    return None if target is None else _estimate_new_list(target.size)


def _estimate_flatten(target: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    levels = _get_whole_number(args[0], UNBOUNDED) if args else 1
    return None if target is None else _estimate_new_list(target.size, float(levels))


def _make_self_comparison_estimate(factor: float) -> EstimateFunction:
    def rule(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
        return (
            None if target is None else _estimate_new_list(multiply_sizes(target.size, target.size), factor)
        )

    return rule


def _make_set_estimate(factor: int) -> EstimateFunction:
    def rule(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
        return CallEstimate(
            add_saturating(
                multiply_saturating(multiply_saturating(args[0].size.high, args[1].size.high), factor), 1
            )
        )

    return rule


def _estimate_format(target: EstimatedArgument | None, _: _Args) -> CallEstimate | None:
    return None if target is None else CallEstimate(_compute_text_cost(target.size.high), UNKNOWN)


def _estimate_quote(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    size = args[0].size
    return CallEstimate(
        _compute_text_cost(size.high),
        SizeRange(add_saturating(size.low, 2), add_saturating(multiply_saturating(size.high, 2), 2)),
    )


def _estimate_to_bytes(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    size = args[0].size
    return CallEstimate(_compute_text_cost(size.high), SizeRange(size.low, multiply_saturating(size.high, 4)))


def _estimate_to_text(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    size = args[0].size
    return CallEstimate(_compute_text_cost(size.high), SizeRange(size.low // 4, size.high))


def _estimate_members(_: EstimatedArgument | None, args: _Args) -> CallEstimate | None:
    return CallEstimate(args[1].size.high)


ESTIMATES_BY_EXTENSION: Final[dict[str, EstimateFunction]] = {
    "list_slice": _estimate_slice,
    "list_flatten": _estimate_flatten,
    "list_flatten_int": _estimate_flatten,
    "lists_range": _estimate_range,
    "list_reverse": _estimate_reverse,
    "list_distinct": _make_self_comparison_estimate(2.0),
    **{
        f"list_{kind}_sort": _make_self_comparison_estimate(2.0) for kind in ("int", "uint", "double", "bool")
    },
    **{f"list_{kind.name}_sort": _make_self_comparison_estimate(2.0) for kind in (t.DURATION, t.TIMESTAMP)},
    **{
        f"list_{kind}_sort": _make_self_comparison_estimate(2.0 + PER_CHARACTER)
        for kind in ("string", "bytes")
    },
    "list_sets_contains_list": _make_set_estimate(1),
    "list_sets_intersects_list": _make_set_estimate(1),
    "list_sets_equivalent_list": _make_set_estimate(2),
}
ESTIMATES_BY_NAME: Final[dict[str, EstimateFunction]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _estimate_traversal),
    **dict.fromkeys(("includes", "include"), _estimate_includes),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _estimate_by_target),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _estimate_by_first
    ),
    **dict.fromkeys(("find", "findAll"), _estimate_search),
    "url": _estimate_by_first_sized,
    "replace": _estimate_replace,
    "split": _estimate_split,
    "join": _estimate_join,
    "ip": _estimate_ip,
    "ip.isCanonical": _estimate_canonical,
    "containsIP": _estimate_contains_ip,
    "containsCIDR": _estimate_contains_network,
    "validate": _estimate_validation,
    "_==_": _estimate_equality,
}
ESTIMATES_BY_ID: Final[dict[str, EstimateFunction]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _estimate_by_first),
    **{
        f"{word}_{kind}": _estimate_shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "equals": _estimate_shorter,
    "not_equals": _estimate_shorter,
    "logical_and": _estimate_logical,
    "logical_or": _estimate_logical,
    "add_string": _estimate_both,
    "add_bytes": _estimate_both,
    "add_list": _estimate_both_lists,
    "contains_string": _estimate_contains,
    "matches_string": _estimate_search,
    "string_format": _estimate_format,
    "strings_quote": _estimate_quote,
    "string_to_bytes": _estimate_to_bytes,
    "bytes_to_string": _estimate_to_text,
    "in_list": _estimate_members,
}
