"""Steps of paths, which are names with fields and indices: `device.attributes["domain"].name`.

Theory of operation: a chain of selections is one path with one root. Nearly all paths are a variable and a
few fixed keys; those are looked up in one go, and only when that fails are they walked again, element by
element, to find the error. In a path with `.?` or `[?]`, everything after the question mark may be missing
too, and the result is an optional.

A path costs one, and one for each field or index that was read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dray.cel.evaluation.frame import COST, Frame, PlannedNode, Planner, Step, attach_offset
from dray.cel.faults import CelError, make_key_error
from dray.cel.library.operators import format_key, get_element, get_optional_element
from dray.cel.syntax.ast import FunctionCall, Ident, Node, Select
from dray.cel.types import is_optional
from dray.cel.values import MAP_TYPES, NONE, OpenMap, OptionalValue, Value

_INDEX_FUNCTIONS: Final = frozenset({"_[_]", "_[?_]"})


class _PathElement(NamedTuple):
    """One field or index: the key when it is known, else the step that computes it."""

    offset: int
    key: Value
    step: Step | None
    optional: bool
    is_field: bool


def is_path(node: Node) -> bool:
    """Whether a node is a selection or an index."""
    return isinstance(node, Select) or (isinstance(node, FunctionCall) and node.function in _INDEX_FUNCTIONS)


def plan_path(planner: Planner, node: Node) -> PlannedNode:
    """The plan of a selection or index."""
    root, elements = _collect_elements(planner, node)
    base = _plan_root(planner, root)
    words = tuple(element.key for element in elements)
    if any(element.optional for element in elements) or is_optional(planner.get_type(root)):
        return PlannedNode(_build_optional_path_step(base, elements), is_path=True)
    if all(element.step is None and type(element.key) is str for element in elements):
        return PlannedNode(_build_fixed_path_step(base, words, elements), is_path=True)
    return PlannedNode(_build_path_step(base, elements), is_path=True)


def split_path(planner: Planner, node: Node) -> tuple[Node, ...]:
    """The root of a path, and the indices in it."""
    parts: list[Node] = []
    while is_path(node) and planner.get_qualified_name(node) is None:
        if isinstance(node, Select):
            node = node.operand
        elif isinstance(node, FunctionCall):
            parts.append(node.args[1])
            node = node.args[0]
    return (*parts, node)


def plan_presence(planner: Planner, node: Select) -> PlannedNode:
    """The plan of `has(a.b)`: all of the path but the last field must be there."""
    root, elements = _collect_elements(planner, node.operand)
    base, field, offset = _plan_root(planner, root), node.field, node.offset
    walk = (
        _build_optional_path_step(base, elements)
        if any(element.optional for element in elements)
        else _build_path_step(base, elements)
    )

    def presence(frame: Frame) -> bool:
        value = walk(frame)
        if type(value) is OptionalValue:
            if value is NONE:
                return False
            value = value.value
        if type(value) in MAP_TYPES:
            # `has` finds every key in an open map.
            return field in value or type(value) is OpenMap
        if type(value) is tuple:
            raise attach_offset(CelError("unsupported index type 'string' in list"), offset)
        return False

    return PlannedNode(presence)


def _collect_elements(planner: Planner, node: Node) -> tuple[Node, tuple[_PathElement, ...]]:
    """The root of a path, and its elements in order."""
    elements: list[_PathElement] = []
    while True:
        if isinstance(node, Select) and not node.test and planner.get_qualified_name(node) is None:
            elements.append(_PathElement(node.offset, node.field, None, node.optional, True))
            node = node.operand
        elif isinstance(node, FunctionCall) and node.function in _INDEX_FUNCTIONS:
            index = planner.plan(node.args[1])
            step = None if index.is_constant else index.run
            elements.append(_PathElement(node.offset, index.value, step, node.function == "_[?_]", False))
            node = node.args[0]
        else:
            return node, tuple(reversed(elements))


def _plan_root(planner: Planner, root: Node) -> Step:
    """The step of a root; a path costs one wherever it starts, and a name is not counted again."""
    planned = planner.plan(root)
    run = planned.run
    if isinstance(root, Ident) and planner.get_qualified_name(root) is None:
        return run

    def relative(frame: Frame) -> Value:
        value = run(frame)
        frame[COST] += 1
        return value

    return relative


def _build_fixed_path_step(base: Step, keys: tuple[str, ...], elements: tuple[_PathElement, ...]) -> Step:
    """A path of fixed words. Only maps have string keys; everything else raises, and is walked again."""
    count = len(keys)
    if count == 1:
        (first,) = keys

        def one(frame: Frame) -> Value:
            value = base(frame)
            frame[COST] += 1
            try:
                return value[first]
            except (KeyError, TypeError):
                return _rewalk_failed_path(frame, value, elements)

        return one
    if count == 3:
        first, second, third = keys

        def three(frame: Frame) -> Value:
            value = base(frame)
            frame[COST] += 3
            try:
                return value[first][second][third]
            except (KeyError, TypeError):
                return _rewalk_failed_path(frame, value, elements)

        return three

    def many(frame: Frame) -> Value:
        value = root = base(frame)
        frame[COST] += count
        try:
            for word in keys:
                value = value[word]
        except (KeyError, TypeError):
            return _rewalk_failed_path(frame, root, elements)
        return value

    return many


def _rewalk_failed_path(frame: Frame, value: Value, elements: tuple[_PathElement, ...]) -> Value:
    """Walk a path element by element, to find the error; elements after the fault cost nothing."""
    left = len(elements)
    for element in elements:
        left -= 1
        try:
            value = _get_element(value, element.key, element.is_field)
        except CelError as error:
            frame[COST] -= left
            raise attach_offset(error, element.offset) from None
    return value


def _get_element(value: Value, key: Value, field: bool) -> Value:
    if (
        field
        and type(value) is not tuple
        and type(value) not in MAP_TYPES
        and type(value) is not OptionalValue
    ):
        raise make_key_error(format_key(key))
    return get_element(value, key)


def _build_path_step(base: Step, elements: tuple[_PathElement, ...]) -> Step:
    def walk(frame: Frame) -> Value:
        value = base(frame)
        for element in elements:
            key = element.key if element.step is None else element.step(frame)
            frame[COST] += 1
            try:
                value = _get_element(value, key, element.is_field)
            except CelError as error:
                raise attach_offset(error, element.offset) from None
        return value

    return walk


def _build_optional_path_step(base: Step, elements: tuple[_PathElement, ...]) -> Step:
    def walk(frame: Frame) -> Value:
        value = base(frame)
        within = False
        for element in elements:
            if type(value) is OptionalValue:
                if value is NONE:
                    return NONE
                within, value = True, value.value
            key = element.key if element.step is None else element.step(frame)
            within = within or element.optional
            try:
                found = (
                    _get_optional_element(value, key)
                    if within
                    else OptionalValue(_get_element(value, key, element.is_field))
                )
            except CelError as error:
                frame[COST] += 1
                raise attach_offset(error, element.offset) from None
            if found is NONE:
                return NONE
            frame[COST] += 1
            value = found.value
        return OptionalValue(value) if within else value

    return walk


def _get_optional_element(value: Value, key: Value) -> OptionalValue:
    """The value at a key, or nothing; values without parts have nothing there either."""
    if type(value) is tuple or type(value) in MAP_TYPES:
        return get_optional_element(value, key)
    return NONE
