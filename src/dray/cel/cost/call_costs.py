"""The cost of a call at run time.

Theory of operation: the unit is that of cel-go and Kubernetes, so that dray rejects an expression exactly
when they do. Most calls cost one; the tables below list the others. A cost function gets the arguments and
the result (`None` before it is known, and after an error) and returns the cost. The planner calls
`plan_call_cost`, which selects the cost function of a call: by overload where that is certain, else by name.
What does not depend on the result is charged before the function runs.

Surcharges are dray's own: some calls cost one in Kubernetes however much work they do, because Go does it
fast enough. Python does not. Surcharges start beyond the sizes of any device and any reasonable expression.

Rules for this file: costs only; `library` has the functions, `call_estimates` the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel.declarations import Overload
from dray.cel.equality import STRICT_TYPES
from dray.cel.library.named_formats import NamedFormat
from dray.cel.library.network import Cidr
from dray.cel.regex import estimate_program_size
from dray.cel.values import MAP_TYPES, Value, get_cost_size

IDENT_COST: Final = 1
LIST_COST: Final = 10
MAP_COST: Final = 30
PER_CHARACTER: Final = 0.1
PER_PATTERN_CHARACTER: Final = 0.25

_MANY_ITEMS: Final = 64
_MANY_CHARACTERS: Final = 640
_MANY_JOINED: Final = 1000
_LIGHT_PATTERN: Final = 100

CostFunction = Callable[[tuple[Value, ...], Value], int]

# Floats, not `(n + 9) // 10`: Kubernetes rounds up what a float makes of it, and 70 characters cost 8.
_SMALL_TEXT_COSTS: Final = tuple(math.ceil(count * PER_CHARACTER) for count in range(256))
_SMALL_TEXT_COSTS_FLOOR: Final = tuple(int(count * PER_CHARACTER) for count in range(256))


def compute_text_cost(count: int) -> int:
    """The cost of traversing this many characters."""
    return _SMALL_TEXT_COSTS[count] if count < 256 else math.ceil(count * PER_CHARACTER)


class CallCost(NamedTuple):
    """The cost of a call: charged before it by arguments, and after it by result."""

    flat: int
    before: CostFunction | None = None
    after: CostFunction | None = None

    def compute_failure_cost(self, args: tuple[Value, ...]) -> int:
        """The whole cost of a call that failed; a failed argument is passed as `None`."""
        before = 0 if self.before is None else self.before(args, None)
        return self.flat + before + (0 if self.after is None else self.after(args, None))


def plan_call_cost(name: str, overloads: tuple[Overload, ...], fresh_pattern: bool = False) -> CallCost:
    """The cost of a call, as far as it is known when the call is planned.

    A pattern that is not constant is compiled when the call runs, and a large one costs more.
    """
    id = overloads[0].id if len(overloads) == 1 else ""
    rule = _BY_EXTENSION.get(id) or _BY_NAME.get(name) or _BY_ID.get(id)
    extra = _charge_heavy_pattern if fresh_pattern else _SURCHARGES.get(name)
    rules = [one for one in (rule, extra) if one is not None]
    before, after = (
        [one for one in rules if (one in _BY_RESULT_FUNCTIONS) is late] for late in (False, True)
    )
    return CallCost(1 if rule is None else 0, _sum_cost_functions(before), _sum_cost_functions(after))


def _sum_cost_functions(rules: list[CostFunction]) -> CostFunction | None:
    if len(rules) < 2:
        return rules[0] if rules else None
    return lambda args, result: sum(rule(args, result) for rule in rules)


def compute_equality_cost(left: Value, right: Value) -> int:
    """The cost of `==` and `!=`: a traversal of the shorter operand."""
    if type(left) in STRICT_TYPES:
        return 1
    return compute_text_cost(min(get_cost_size(left), get_cost_size(right)))


def _charge_first_text(args: tuple[Value, ...], _: Value) -> int:
    return compute_text_cost(get_cost_size(args[0]))


def _charge_second_text(args: tuple[Value, ...], _: Value) -> int:
    return compute_text_cost(get_cost_size(args[1]))


def _charge_first_twice(args: tuple[Value, ...], _: Value) -> int:
    return math.ceil(get_cost_size(args[0]) * 2 * PER_CHARACTER)


def _charge_result_twice(_: tuple[Value, ...], result: Value) -> int:
    return math.ceil(get_cost_size(result) * 2 * PER_CHARACTER)


def _compute_pattern_cost(text_size: int, pattern_size: int) -> int:
    return math.ceil((1.0 + text_size) * PER_CHARACTER) * math.ceil(pattern_size * PER_PATTERN_CHARACTER)


def _charge_search(args: tuple[Value, ...], _: Value) -> int:
    return _compute_pattern_cost(get_cost_size(args[0]), get_cost_size(args[1]))


def _charge_long_search(args: tuple[Value, ...], _: Value) -> int:
    """`matches(text, pattern)` costs one in Kubernetes, and here as long as the text is short."""
    return _charge_search(args, None) if get_cost_size(args[0]) > _MANY_CHARACTERS else 1


def _charge_validation(args: tuple[Value, ...], _: Value) -> int:
    named = args[0]
    return (
        _compute_pattern_cost(get_cost_size(args[1]), named.pattern_size) if type(named) is NamedFormat else 1
    )


def _charge_traversal(args: tuple[Value, ...], _: Value) -> int:
    return _compute_traversal_cost(args[0], 0)


def _compute_traversal_cost(value: Value, depth: int) -> int:
    kind = type(value)
    if kind is str:
        count = len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
        return _SMALL_TEXT_COSTS_FLOOR[count] if count < 256 else int(count * PER_CHARACTER)
    if kind is bytes:
        return int(len(value) * PER_CHARACTER)
    if depth > 50:
        return 1
    if kind is tuple:
        return sum([_compute_traversal_cost(item, depth + 1) for item in value])
    if kind in MAP_TYPES:
        return sum(
            _compute_traversal_cost(key, depth + 1) + _compute_traversal_cost(item, depth + 1)
            for key, item in value.items()
        )
    return 1


def _charge_contains(args: tuple[Value, ...], _: Value) -> int:
    return compute_text_cost(get_cost_size(args[0])) * compute_text_cost(get_cost_size(args[1]))


def _count_octets(value: Value) -> int:
    return value.octets if type(value) is Cidr else 1


def _charge_contains_ip(args: tuple[Value, ...], _: Value) -> int:
    text = compute_text_cost(len(args[1])) if type(args[1]) is str else 0
    return math.ceil((_count_octets(args[0]) * 2) * PER_CHARACTER) + text


def _charge_contains_network(args: tuple[Value, ...], _: Value) -> int:
    return _charge_contains_ip(args, None) + compute_text_cost(_count_octets(args[0])) + 1


def _compute_new_list_cost(count: float) -> int:
    return int(count) + 1 + LIST_COST


def _charge_list_by_result(_: tuple[Value, ...], result: Value) -> int:
    return _compute_new_list_cost(get_cost_size(result))


def _charge_list_by_input(args: tuple[Value, ...], _: Value) -> int:
    return _compute_new_list_cost(get_cost_size(args[0]))


def _charge_list_by_count(args: tuple[Value, ...], _: Value) -> int:
    return _compute_new_list_cost(max(args[0], 0) if type(args[0]) is int else 0)


def _charge_flatten(args: tuple[Value, ...], _: Value) -> int:
    levels = args[1] if len(args) == 2 and type(args[1]) is int else 1
    return _compute_new_list_cost(get_cost_size(args[0]) * max(levels, 0))


def _charge_self_comparison(args: tuple[Value, ...], _: Value) -> int:
    items = args[0]
    texts = type(items) is tuple and bool(items) and type(items[0]) in (str, bytes)
    return _compute_new_list_cost(get_cost_size(items) ** 2 * (2.0 + PER_CHARACTER if texts else 2.0))


def _make_set_cost(factor: int) -> CostFunction:
    return lambda args, _: 1 + get_cost_size(args[0]) * get_cost_size(args[1]) * factor


def _charge_equality(args: tuple[Value, ...], _: Value) -> int:
    return compute_equality_cost(args[0], args[1])


def _charge_shorter(args: tuple[Value, ...], _: Value) -> int:
    return compute_text_cost(min(get_cost_size(args[0]), get_cost_size(args[1])))


def _charge_both(args: tuple[Value, ...], _: Value) -> int:
    return math.ceil((get_cost_size(args[0]) + get_cost_size(args[1])) * PER_CHARACTER)


def _charge_members(args: tuple[Value, ...], _: Value) -> int:
    return get_cost_size(args[1])


def _charge_heavy_pattern(args: tuple[Value, ...], _: Value) -> int:
    weight = estimate_program_size(args[1]) if type(args[1]) is str else 0
    return weight if weight > _LIGHT_PATTERN else 0


def _charge_long_text(args: tuple[Value, ...], _: Value) -> int:
    return compute_text_cost(get_cost_size(args[0])) if get_cost_size(args[0]) > _MANY_CHARACTERS else 0


def _charge_long_result(args: tuple[Value, ...], result: Value) -> int:
    return max(compute_text_cost(get_cost_size(result)) - _charge_first_twice(args, None), 0)


def _charge_long_list(args: tuple[Value, ...], _: Value) -> int:
    return (
        get_cost_size(args[1]) // 4 if get_cost_size(args[1]) > _MANY_ITEMS and type(args[1]) is tuple else 0
    )


def _charge_long_join(args: tuple[Value, ...], _: Value) -> int:
    count = get_cost_size(args[0]) + get_cost_size(args[1])
    return count // 100 if count > _MANY_JOINED and type(args[0]) is tuple else 0


def _charge_long_flatten(_: tuple[Value, ...], result: Value) -> int:
    return get_cost_size(result) // 4 if get_cost_size(result) > _MANY_ITEMS else 0


_SURCHARGES: Final[dict[str, CostFunction]] = {
    "isURL": _charge_long_text,
    "replace": _charge_long_result,
    "@in": _charge_long_list,
    "_+_": _charge_long_join,
    "flatten": _charge_long_flatten,
}
_BY_RESULT_FUNCTIONS: Final = frozenset(
    (_charge_result_twice, _charge_list_by_result, _charge_long_result, _charge_long_flatten)
)
_BY_EXTENSION: Final[dict[str, CostFunction]] = {
    "list_slice": _charge_list_by_result,
    "list_flatten": _charge_flatten,
    "list_flatten_int": _charge_flatten,
    "lists_range": _charge_list_by_count,
    "list_reverse": _charge_list_by_input,
    "list_distinct": _charge_self_comparison,
    **{
        f"list_{kind}_sort": _charge_self_comparison
        for kind in ("int", "uint", "double", "bool", "string", "bytes")
    },
    "list_google.protobuf.Duration_sort": _charge_self_comparison,
    "list_google.protobuf.Timestamp_sort": _charge_self_comparison,
    "list_sets_contains_list": _make_set_cost(1),
    "list_sets_intersects_list": _make_set_cost(1),
    "list_sets_equivalent_list": _make_set_cost(2),
}
_BY_NAME: Final[dict[str, CostFunction]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes", "include"), _charge_traversal
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _charge_first_text),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _charge_first_text
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _charge_first_twice),
    **dict.fromkeys(("find", "findAll"), _charge_search),
    "join": _charge_result_twice,
    "validate": _charge_validation,
    "containsIP": _charge_contains_ip,
    "containsCIDR": _charge_contains_network,
    "_==_": _charge_equality,
}
_BY_ID: Final[dict[str, CostFunction]] = {
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _charge_second_text),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format", "string_to_ip"),
        _charge_first_text,
    ),
    **{
        f"{word}_{kind}": _charge_shorter
        for word in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
    "not_equals": _charge_shorter,
    "in_list": _charge_members,
    "add_string": _charge_both,
    "add_bytes": _charge_both,
    "matches_string": _charge_search,
    "matches": _charge_long_search,
    "contains_string": _charge_contains,
}
