"""Which paths of a variable an expression reads.

Theory of operation: most expressions use a variable only as the root of paths whose keys are literals
(`device.attributes["domain"].name`). Their value depends only on what is at the end of these paths, so a
caller that evaluates an expression for many values needs to do it only once per distinct combination. An
expression that uses the variable as a whole may read anything.

A path ends before a step that is not a fixed key: `device.list[0]` reads `device.list`, and `device.?name`
all of `device`. A presence test, with `has` or with `in`, reads the path it tests.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from dray.cel.syntax.ast import (
    Comprehension,
    FunctionCall,
    Ident,
    Literal,
    Node,
    OptionalMap,
    Select,
    get_children,
)

_INDEX: Final = "_[_]"


class VariableReads:
    """What one expression reads; computed on demand."""

    __slots__ = ("_qualified", "_root")

    def __init__(self, root: Node, qualified: Container[int]) -> None:
        """`qualified` has the ids of nodes that are names with dots and not selections."""
        self._root = root
        self._qualified = qualified

    def find_reads(self, variable: str) -> frozenset[PathRead] | None:
        """Every path it reads from a variable; None when it may read anything."""
        return _find_reads(self._root, variable, self._qualified)

    def find_required_text(self, variable: str) -> RequiredText | None:
        """The path that must have a certain text, when that is tested before anything else.

        An expression `a == "text"`, or `a == "text" && …`, is false where the path has another text.
        """
        node, alone = self._root, True
        while isinstance(node, FunctionCall) and node.function == "_&&_" and node.target is None:
            node, alone = node.args[0], False
        if not isinstance(node, FunctionCall) or node.function != "_==_" or node.target is not None:
            return None
        path, text = node.args
        words, rest = _get_fixed_path(path, variable)
        if not words or rest or not isinstance(text, Literal) or type(text.value) is not str:
            return None
        return RequiredText(words, text.value, alone)


class RequiredText(NamedTuple):
    """A text that a path must have; `is_only_condition` when there is no other condition."""

    path: tuple[str, ...]
    text: str
    is_only_condition: bool


class PathRead(NamedTuple):
    """A path from a variable; `is_presence_test` when only its presence matters."""

    path: tuple[str, ...]
    is_presence_test: bool = False


def _find_reads(root: Node, variable: str, qualified: Container[int]) -> frozenset[PathRead] | None:
    found: set[PathRead] = set()
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if _rebinds_variable(node, variable):
            return None
        if isinstance(node, Ident) and node.name == variable:
            return None
        if isinstance(node, Select) and node.id in qualified:
            continue
        tested = _get_presence_test(node)
        if tested is not None:
            base, word = tested
            words, rest = _get_fixed_path(base, variable)
            if words is not None and not rest:
                found.add(PathRead((*words, word), is_presence_test=True))
                continue
        words, rest = _get_fixed_path(node, variable)
        if words:
            found.add(PathRead(words))
            waiting += rest
            continue
        waiting += (
            node.args if isinstance(node, FunctionCall) and node.id in qualified else _get_all_children(node)
        )
    return frozenset(found)


def _rebinds_variable(node: Node, variable: str) -> bool:
    """Whether a macro gives the name of the variable another meaning."""
    if isinstance(node, Comprehension):
        return variable in node.names or node.loop.accu == variable
    return isinstance(node, OptionalMap) and node.name == variable


def _get_all_children(node: Node) -> tuple[Node, ...]:
    written: tuple[Node | None, ...] = ()
    if isinstance(node, Comprehension):
        written = (node.test, node.transform)
    elif isinstance(node, OptionalMap):
        written = (node.target, node.transform)
    return (*get_children(node), *[one for one in written if one is not None])


def _get_presence_test(node: Node) -> tuple[Node, str] | None:
    """Where a test for presence looks, and for which word; None for anything else."""
    if isinstance(node, Select):
        return (node.operand, node.field) if node.test else None
    if isinstance(node, FunctionCall) and node.function == "@in" and node.target is None:
        word, base = node.args
        if isinstance(word, Literal) and type(word.value) is str:
            return base, word.value
    return None


def _get_fixed_path(node: Node, variable: str) -> tuple[tuple[str, ...] | None, list[Node]]:
    """The fixed words of a path from the variable, None when it is none; and the indices behind them."""
    elements: list[Node | str] = []
    while True:
        if isinstance(node, Select) and not node.test and not node.optional:
            elements.append(node.field)
            node = node.operand
        elif isinstance(node, FunctionCall) and node.function == _INDEX and node.target is None:
            index = node.args[1]
            fixed = isinstance(index, Literal) and type(index.value) is str
            elements.append(index.value if fixed and isinstance(index, Literal) else index)
            node = node.args[0]
        else:
            break
    if not isinstance(node, Ident) or node.name != variable:
        return None, []
    elements.reverse()
    count = next(
        (place for place, element in enumerate(elements) if not isinstance(element, str)), len(elements)
    )
    words = tuple(element for element in elements[:count] if isinstance(element, str))
    return words, [element for element in elements[count:] if not isinstance(element, str)]
