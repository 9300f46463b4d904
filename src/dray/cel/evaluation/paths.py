"""Names with fields and indices: `device.attributes["domain"].name`.

Theory of operation: a chain of selections is one path with one root. Nearly all paths are a variable and a
few fixed words; those are looked up in one go, and only when that fails are they walked again, slowly, to
find out what exactly is wrong. In a path with `.?` or `[?]`, everything after the question mark may be
missing too, and the result is an optional.

A path costs one, and one for each field or index that was looked at.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dray.cel.evaluation.frame import COST, Frame, Plan, Planner, Step, placed
from dray.cel.faults import CelError
from dray.cel.library.operators import at, at_if_there, key_text
from dray.cel.syntax.ast import Call, Ident, Node, Select
from dray.cel.types import is_optional
from dray.cel.values import MAPS, NONE, OpenMap, Optional, Value

_INDEX: Final = frozenset({"_[_]", "_[?_]"})


class _Hop(NamedTuple):
    """One field or index: the key when it is known, else the step that computes it."""

    offset: int
    key: Value
    step: Step | None
    optional: bool
    field: bool


def is_path(node: Node) -> bool:
    """Whether a node is a selection or an index."""
    return isinstance(node, Select) or (isinstance(node, Call) and node.function in _INDEX)


def plan_path(planner: Planner, node: Node) -> Plan:
    """The plan of a selection or index."""
    root, hops = _taken_apart(planner, node)
    base = _root(planner, root)
    words = tuple(hop.key for hop in hops)
    if any(hop.optional for hop in hops) or is_optional(planner.type_of(root)):
        return Plan(_optional_walk(base, hops), is_path=True)
    if all(hop.step is None and type(hop.key) is str for hop in hops):
        return Plan(_words(base, words, hops), is_path=True)
    return Plan(_walk(base, hops), is_path=True)


def path_parts(planner: Planner, node: Node) -> tuple[Node, ...]:
    """What a path is made of: its root, and the indices on the way."""
    parts: list[Node] = []
    while is_path(node) and planner.qualified(node) is None:
        if isinstance(node, Select):
            node = node.operand
        elif isinstance(node, Call):
            parts.append(node.args[1])
            node = node.args[0]
    return (*parts, node)


def plan_presence(planner: Planner, node: Select) -> Plan:
    """The plan of `has(a.b)`: all of the path but the last field must be there."""
    root, hops = _taken_apart(planner, node.operand)
    base, field, offset = _root(planner, root), node.field, node.offset
    walk = _optional_walk(base, hops) if any(hop.optional for hop in hops) else _walk(base, hops)

    def presence(frame: Frame) -> bool:
        value = walk(frame)
        if type(value) is Optional:
            if value is NONE:
                return False
            value = value.value
        if type(value) in MAPS:
            # A map that answers for every key has every key, as far as `has` can tell.
            return field in value or type(value) is OpenMap
        if type(value) is tuple:
            raise placed(CelError("unsupported index type 'string' in list"), offset)
        return False

    return Plan(presence)


def _taken_apart(planner: Planner, node: Node) -> tuple[Node, tuple[_Hop, ...]]:
    """The root of a path, and the hops from it in order."""
    hops: list[_Hop] = []
    while True:
        if isinstance(node, Select) and not node.test and planner.qualified(node) is None:
            hops.append(_Hop(node.offset, node.field, None, node.optional, True))
            node = node.operand
        elif isinstance(node, Call) and node.function in _INDEX:
            index = planner.plan(node.args[1])
            step = None if index.known else index.run
            hops.append(_Hop(node.offset, index.value, step, node.function == "_[?_]", False))
            node = node.args[0]
        else:
            return node, tuple(reversed(hops))


def _root(planner: Planner, root: Node) -> Step:
    """The step of a root; a path costs one wherever it starts, and a name is not counted again."""
    planned = planner.plan(root)
    run = planned.run
    if isinstance(root, Ident) and planner.qualified(root) is None:
        return run

    def relative(frame: Frame) -> Value:
        value = run(frame)
        frame[COST] += 1
        return value

    return relative


def _words(base: Step, words: tuple[str, ...], hops: tuple[_Hop, ...]) -> Step:
    """A path of fixed words. Only maps take a word as an index; all else raises, and is looked at again."""
    count = len(words)
    if count == 1:
        (first,) = words

        def one(frame: Frame) -> Value:
            value = base(frame)
            frame[COST] += 1
            try:
                return value[first]
            except (KeyError, TypeError):
                return _again(frame, value, hops)

        return one
    if count == 3:
        first, second, third = words

        def three(frame: Frame) -> Value:
            value = base(frame)
            frame[COST] += 3
            try:
                return value[first][second][third]
            except (KeyError, TypeError):
                return _again(frame, value, hops)

        return three

    def many(frame: Frame) -> Value:
        value = root = base(frame)
        frame[COST] += count
        try:
            for word in words:
                value = value[word]
        except (KeyError, TypeError):
            return _again(frame, root, hops)
        return value

    return many


def _again(frame: Frame, value: Value, hops: tuple[_Hop, ...]) -> Value:
    """Walk a path slowly, to say what is wrong with it; hops behind the fault cost nothing."""
    left = len(hops)
    for hop in hops:
        left -= 1
        try:
            value = _hopped(value, hop.key, hop.field)
        except CelError as error:
            frame[COST] -= left
            raise placed(error, hop.offset) from None
    return value


def _hopped(value: Value, key: Value, field: bool) -> Value:
    if field and type(value) is not tuple and type(value) not in MAPS and type(value) is not Optional:
        raise CelError(f"no such key: {key_text(key)}")
    return at(value, key)


def _walk(base: Step, hops: tuple[_Hop, ...]) -> Step:
    def walk(frame: Frame) -> Value:
        value = base(frame)
        for hop in hops:
            key = hop.key if hop.step is None else hop.step(frame)
            frame[COST] += 1
            try:
                value = _hopped(value, key, hop.field)
            except CelError as error:
                raise placed(error, hop.offset) from None
        return value

    return walk


def _optional_walk(base: Step, hops: tuple[_Hop, ...]) -> Step:
    def walk(frame: Frame) -> Value:
        value = base(frame)
        within = False
        for hop in hops:
            if type(value) is Optional:
                if value is NONE:
                    return NONE
                within, value = True, value.value
            key = hop.key if hop.step is None else hop.step(frame)
            within = within or hop.optional
            try:
                found = _if_there(value, key) if within else Optional(_hopped(value, key, hop.field))
            except CelError as error:
                frame[COST] += 1
                raise placed(error, hop.offset) from None
            if found is NONE:
                return NONE
            frame[COST] += 1
            value = found.value
        return Optional(value) if within else value

    return walk


def _if_there(value: Value, key: Value) -> Optional:
    """The value at a key, or nothing; things that have no parts have none there either."""
    if type(value) is tuple or type(value) in MAPS:
        return at_if_there(value, key)
    return NONE
