"""Literals that cannot be right: found after types are, before anything runs.

`duration("x")`, `timestamp("x")` and `s.matches("(")` fail whenever they are evaluated, so they are refused
when the expression is compiled. Lists and maps must hold values of one type, except where `format` takes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dray.cel import types as t
from dray.cel.checking.checker import Checked
from dray.cel.faults import CelError
from dray.cel.regex import EngineMissingError, pattern
from dray.cel.source import Issue
from dray.cel.syntax.ast import Call, ListLiteral, Literal, MapLiteral, Node, children
from dray.cel.times import parse_duration, parse_timestamp
from dray.cel.types import Type

_TRIED: Final[dict[str, Callable[[str], object]]] = {
    "duration": parse_duration,
    "timestamp": parse_timestamp,
    "matches": pattern,
}
_MIXED_ALLOWED: Final = "format"


def literal_issues(root: Node, checked: Checked) -> list[Issue]:
    """Everything wrong with the literals of a tree, in the order of the text."""
    issues: list[Issue] = []
    for node, mixed_allowed in _walked(root):
        match node:
            case Call():
                issues += _argument(node)
            case ListLiteral() if not mixed_allowed:
                issues += _list(node, checked)
            case MapLiteral() if not mixed_allowed:
                issues += _map(node, checked)
            case _:
                pass
    return sorted(set(issues))


def _walked(root: Node) -> Iterator[tuple[Node, bool]]:
    """Every node, and whether it lies in the arguments of a function that takes mixed lists."""
    waiting = [(root, False)]
    seen: set[int] = set()
    while waiting:
        node, allowed = waiting.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        yield node, allowed
        inside = isinstance(node, Call) and node.function == _MIXED_ALLOWED
        inherited = isinstance(node, ListLiteral | MapLiteral) and allowed
        waiting += [(child, inside or inherited) for child in children(node)]


def _argument(node: Call) -> Iterator[Issue]:
    attempt = _TRIED.get(node.function)
    first = node.args[0] if node.args else None
    if attempt is None or not isinstance(first, Literal) or type(first.value) is not str:
        return
    try:
        attempt(first.value)
    except EngineMissingError as missing:
        yield Issue(first.offset, missing.message)
    except CelError:
        yield Issue(first.offset, f"invalid {node.function} argument")


def _list(node: ListLiteral, checked: Checked) -> Iterator[Issue]:
    wanted: Type | None = None
    for place, item in enumerate(node.items):
        found = _inner(checked.types[item.id], place in node.optional)
        if wanted is not None and found != wanted:
            yield _mismatch(item, wanted, found)
            return
        wanted = found


def _map(node: MapLiteral, checked: Checked) -> Iterator[Issue]:
    first = node.entries[0] if node.entries else None
    if first is None:
        return
    key = checked.types[first.key.id]
    value = _inner(checked.types[first.value.id], first.optional)
    for entry in node.entries[1:]:
        other_key = checked.types[entry.key.id]
        other = _inner(checked.types[entry.value.id], entry.optional)
        if other_key != key:
            yield _mismatch(entry.key, key, other_key)
        if other != value:
            yield _mismatch(entry.value, value, other)


def _inner(one: Type, optional: bool) -> Type:
    return one.params[0] if optional and t.is_optional(one) else one


def _mismatch(node: Node, wanted: Type, found: Type) -> Issue:
    return Issue(node.offset, f"expected type '{t.spelled(wanted)}' but found '{t.spelled(found)}'")
