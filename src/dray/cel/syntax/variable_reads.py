"""What an expression reads of a variable: the paths of fixed words that start at it.

Theory of operation: most expressions mention a variable only as the root of paths whose words are written out
(`device.attributes["domain"].name`). Their value depends on nothing but what stands at the end of these
paths, so whoever evaluates one for many values needs to do it only once per distinct combination. An
expression that uses the variable as a whole may read anything.

A path ends before a step that is not a fixed word: `device.list[0]` reads `device.list`, and `device.?name`
all of `device`. A test for presence, with `has` or with `in`, reads the path it asks about.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from dray.cel.syntax.ast import Call, Fold, Ident, Literal, Node, OptionalMap, Select, children

_INDEX: Final = "_[_]"


class Reading:
    """What one expression looks at; found out when it is asked for."""

    __slots__ = ("_qualified", "_root")

    def __init__(self, root: Node, qualified: Container[int]) -> None:
        """`qualified` has the ids of nodes that are names with dots and not selections."""
        self._root = root
        self._qualified = qualified

    def reads(self, variable: str) -> frozenset[Read] | None:
        """Every path it reads from a variable; None when it may read anything."""
        return _reads_of(self._root, variable, self._qualified)

    def demanded(self, variable: str) -> Demanded | None:
        """The path that must hold a certain text, when that is tested before anything else.

        An expression `a == "text"`, or `a == "text" && …`, is false where the path has another text.
        """
        node, alone = self._root, True
        while isinstance(node, Call) and node.function == "_&&_" and node.target is None:
            node, alone = node.args[0], False
        if not isinstance(node, Call) or node.function != "_==_" or node.target is not None:
            return None
        path, text = node.args
        words, rest = _path(path, variable)
        if not words or rest or not isinstance(text, Literal) or type(text.value) is not str:
            return None
        return Demanded(words, text.value, alone)


class Demanded(NamedTuple):
    """A text that a path must hold; `alone` when nothing else is asked."""

    words: tuple[str, ...]
    text: str
    alone: bool


class Read(NamedTuple):
    """A path from a variable; `presence` when only its being there is asked for."""

    words: tuple[str, ...]
    presence: bool = False


def _reads_of(root: Node, variable: str, qualified: Container[int]) -> frozenset[Read] | None:
    found: set[Read] = set()
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if _binds(node, variable):
            return None
        if isinstance(node, Ident) and node.name == variable:
            return None
        if isinstance(node, Select) and node.id in qualified:
            continue
        tested = _tested(node)
        if tested is not None:
            base, word = tested
            words, rest = _path(base, variable)
            if words is not None and not rest:
                found.add(Read((*words, word), presence=True))
                continue
        words, rest = _path(node, variable)
        if words:
            found.add(Read(words))
            waiting += rest
            continue
        waiting += node.args if isinstance(node, Call) and node.id in qualified else _below(node)
    return frozenset(found)


def _binds(node: Node, variable: str) -> bool:
    """Whether a macro gives the name of the variable another meaning."""
    if isinstance(node, Fold):
        return variable in node.names or node.loop.accu == variable
    return isinstance(node, OptionalMap) and node.name == variable


def _below(node: Node) -> tuple[Node, ...]:
    written: tuple[Node | None, ...] = ()
    if isinstance(node, Fold):
        written = (node.test, node.made)
    elif isinstance(node, OptionalMap):
        written = (node.target, node.made)
    return (*children(node), *[one for one in written if one is not None])


def _tested(node: Node) -> tuple[Node, str] | None:
    """Where a test for presence looks, and for which word; None for anything else."""
    if isinstance(node, Select):
        return (node.operand, node.field) if node.test else None
    if isinstance(node, Call) and node.function == "@in" and node.target is None:
        word, base = node.args
        if isinstance(word, Literal) and type(word.value) is str:
            return base, word.value
    return None


def _path(node: Node, variable: str) -> tuple[tuple[str, ...] | None, list[Node]]:
    """The fixed words of a path from the variable, None when it is none; and the indices behind them."""
    hops: list[Node | str] = []
    while True:
        if isinstance(node, Select) and not node.test and not node.optional:
            hops.append(node.field)
            node = node.operand
        elif isinstance(node, Call) and node.function == _INDEX and node.target is None:
            index = node.args[1]
            fixed = isinstance(index, Literal) and type(index.value) is str
            hops.append(index.value if fixed and isinstance(index, Literal) else index)
            node = node.args[0]
        else:
            break
    if not isinstance(node, Ident) or node.name != variable:
        return None, []
    hops.reverse()
    count = next((place for place, hop in enumerate(hops) if not isinstance(hop, str)), len(hops))
    words = tuple(hop for hop in hops[:count] if isinstance(hop, str))
    return words, [hop for hop in hops[count:] if not isinstance(hop, str)]
