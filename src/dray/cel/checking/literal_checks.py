"""Checks of literal arguments and of list and map literals, after type checking and before anything runs.

`duration("x")`, `timestamp("x")` and `s.matches("(")` fail whenever they are evaluated, so the compiler
rejects them. Lists and maps must contain values of one type, except in the arguments of `format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dray.cel import types as t
from dray.cel.checking.checker import CheckResult
from dray.cel.faults import CelError
from dray.cel.issue_causes import InvalidLiteralArgument, MixedTypes
from dray.cel.regex import EngineMissingError, compile_pattern
from dray.cel.source import ExpressionIssue, sort_issues
from dray.cel.syntax.ast import FunctionCall, ListLiteral, Literal, MapLiteral, Node, get_children
from dray.cel.times import parse_duration, parse_timestamp
from dray.cel.types import Type

_ARGUMENT_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "duration": parse_duration,
    "timestamp": parse_timestamp,
    "matches": compile_pattern,
}
_MIXED_ALLOWED: Final = "format"


def find_literal_issues(root: Node, checked: CheckResult) -> list[ExpressionIssue]:
    """Everything wrong with the literals of a tree, in the order of the text."""
    issues: list[ExpressionIssue] = []
    for node, mixed_allowed in _walk_nodes(root):
        match node:
            case FunctionCall():
                issues += _check_argument(node)
            case ListLiteral() if not mixed_allowed:
                issues += _check_list(node, checked)
            case MapLiteral() if not mixed_allowed:
                issues += _check_map(node, checked)
            case _:
                pass
    return sort_issues(issues)


def _walk_nodes(root: Node) -> Iterator[tuple[Node, bool]]:
    """Every node, and whether it lies in the arguments of a function that takes mixed lists."""
    waiting = [(root, False)]
    seen: set[int] = set()
    while waiting:
        node, allowed = waiting.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        yield node, allowed
        inside = isinstance(node, FunctionCall) and node.function == _MIXED_ALLOWED
        inherited = isinstance(node, ListLiteral | MapLiteral) and allowed
        waiting += [(child, inside or inherited) for child in get_children(node)]


def _check_argument(node: FunctionCall) -> Iterator[ExpressionIssue]:
    attempt = _ARGUMENT_PARSERS.get(node.function)
    first = node.args[0] if node.args else None
    if attempt is None or not isinstance(first, Literal) or type(first.value) is not str:
        return
    try:
        attempt(first.value)
    except EngineMissingError as missing:
        yield ExpressionIssue(first.offset, missing.message)
    except CelError:
        cause = InvalidLiteralArgument(node.function)
        yield ExpressionIssue(first.offset, f"invalid {node.function} argument", cause)


def _check_list(node: ListLiteral, checked: CheckResult) -> Iterator[ExpressionIssue]:
    wanted: Type | None = None
    for place, item in enumerate(node.items):
        found = _unwrap_type(checked.types[item.id], place in node.optional)
        if wanted is not None and found != wanted:
            yield _make_mismatch_issue(item, wanted, found)
            return
        wanted = found


def _check_map(node: MapLiteral, checked: CheckResult) -> Iterator[ExpressionIssue]:
    first = node.entries[0] if node.entries else None
    if first is None:
        return
    key = checked.types[first.key.id]
    value = _unwrap_type(checked.types[first.value.id], first.optional)
    for entry in node.entries[1:]:
        other_key = checked.types[entry.key.id]
        other = _unwrap_type(checked.types[entry.value.id], entry.optional)
        if other_key != key:
            yield _make_mismatch_issue(entry.key, key, other_key)
        if other != value:
            yield _make_mismatch_issue(entry.value, value, other)


def _unwrap_type(one: Type, optional: bool) -> Type:
    return one.params[0] if optional and t.is_optional(one) else one


def _make_mismatch_issue(node: Node, wanted: Type, found: Type) -> ExpressionIssue:
    message = f"expected type '{t.format_type(wanted)}' but found '{t.format_type(found)}'"
    return ExpressionIssue(node.offset, message, MixedTypes(wanted, found))
