"""Macro expansion: calls that are rewritten before type checking.

Theory of operation: a macro is found by name, number of arguments and whether it has a target. The expansion
is the loop that the CEL specification gives the macro; types and worst-case costs are computed on that loop.
What runs is not the loop but the macro as it was written; see `evaluation.comprehensions`.

Rules for this file: nothing is evaluated and nothing is checked beyond "is this a simple name".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from dray.cel.faults import RejectedError
from dray.cel.issue_causes import InvalidHasArgument
from dray.cel.source import ExpressionIssue
from dray.cel.syntax.ast import Comprehension, ComprehensionKind, ComprehensionLoop, Ident, Node, Select
from dray.cel.syntax.node_factory import NodeFactory

ACCUMULATOR: Final = "@result"
"""The accumulator; no name in the text can be equal to it."""
UNUSED: Final = "#unused"

_Args = tuple[Node, ...]
_Macro = Callable[[NodeFactory, int, Node, _Args], Node]


def expand_macro(
    factory: NodeFactory, offset: int, function: str, target: Node | None, args: _Args
) -> Node | None:
    """The node a macro stands for, or nothing when the call is no macro."""
    if target is None:
        return _expand_has(factory, offset, args[0]) if function == "has" and len(args) == 1 else None
    if isinstance(target, Ident) and target.name == "cel" and function == "bind" and len(args) == 3:
        return _expand_bind(factory, offset, args)
    macro = _MACROS.get((function, len(args)))
    return None if macro is None else macro(factory, offset, target, args)


def _expand_has(factory: NodeFactory, offset: int, arg: Node) -> Node:
    if not isinstance(arg, Select) or arg.test or arg.optional:
        raise RejectedError(
            (ExpressionIssue(arg.offset, "invalid argument to has() macro", InvalidHasArgument()),)
        )
    return factory.make_presence_test(offset, arg.operand, arg.field)


def _expand_bind(factory: NodeFactory, offset: int, args: _Args) -> Node:
    name = _get_simple_name(args[0])
    loop = ComprehensionLoop(
        name, args[1], factory.make_literal(offset, False), factory.make_ident(offset, name), args[2]
    )
    nothing = factory.make_list(offset, (), frozenset())
    comprehension = factory.make_comprehension(offset, ComprehensionKind.BIND, nothing, (UNUSED,), loop)
    return factory.attach_written(comprehension, None, args[2])


def _expand_all(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    accu = _make_accumulator(factory, offset)
    loop = ComprehensionLoop(
        ACCUMULATOR,
        factory.make_literal(offset, True),
        factory.make_call(offset, "@not_strictly_false", accu),
        factory.make_call(offset, "_&&_", _make_accumulator(factory, offset), args[-1]),
        _make_accumulator(factory, offset),
    )
    return _build_quantifier(factory, offset, ComprehensionKind.ALL, (target, args), loop)


def _expand_exists(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    missing = factory.make_call(offset, "!_", _make_accumulator(factory, offset))
    loop = ComprehensionLoop(
        ACCUMULATOR,
        factory.make_literal(offset, False),
        factory.make_call(offset, "@not_strictly_false", missing),
        factory.make_call(offset, "_||_", _make_accumulator(factory, offset), args[-1]),
        _make_accumulator(factory, offset),
    )
    return _build_quantifier(factory, offset, ComprehensionKind.EXISTS, (target, args), loop)


def _expand_exists_one(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    more = factory.make_call(
        offset, "_+_", _make_accumulator(factory, offset), factory.make_literal(offset, 1)
    )
    loop = ComprehensionLoop(
        ACCUMULATOR,
        factory.make_literal(offset, 0),
        factory.make_literal(offset, True),
        factory.make_call(offset, "_?_:_", args[-1], more, _make_accumulator(factory, offset)),
        factory.make_call(
            offset, "_==_", _make_accumulator(factory, offset), factory.make_literal(offset, 1)
        ),
    )
    return _build_quantifier(factory, offset, ComprehensionKind.EXISTS_ONE, (target, args), loop)


def _build_quantifier(
    factory: NodeFactory,
    offset: int,
    kind: ComprehensionKind,
    written: tuple[Node, _Args],
    loop: ComprehensionLoop,
) -> Comprehension:
    target, args = written
    comprehension = factory.make_comprehension(offset, kind, target, _get_variable_names(args[:-1]), loop)
    return factory.attach_written(comprehension, args[-1], None)


def _expand_map(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    test = args[1] if len(args) == 3 else None
    return _build_list_comprehension(factory, offset, (target, args[:1]), test, args[-1])


def _expand_filter(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    kept = factory.make_ident(offset, _get_simple_name(args[0]))
    return _build_list_comprehension(factory, offset, (target, args[:1]), args[1], kept)


def _expand_transform_list(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    return _build_list_comprehension(factory, offset, (target, args[:2]), test, args[-1])


def _build_list_comprehension(
    factory: NodeFactory, offset: int, over: tuple[Node, _Args], test: Node | None, transform: Node
) -> Comprehension:
    one = factory.make_list(offset, (transform,), frozenset())
    step: Node = factory.make_call(offset, "_+_", _make_accumulator(factory, offset), one)
    init = factory.make_list(offset, (), frozenset())
    return _build_collecting(factory, ComprehensionKind.LIST, over, (test, transform), (init, step))


def _expand_transform_map(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    key = factory.make_ident(offset, _get_simple_name(args[0]))
    step = factory.make_call(offset, "cel.@mapInsert", _make_accumulator(factory, offset), key, args[-1])
    init = factory.make_map(offset, ())
    return _build_collecting(
        factory, ComprehensionKind.MAP, (target, args[:2]), (test, args[-1]), (init, step)
    )


def _expand_transform_entries(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    step = factory.make_call(offset, "cel.@mapInsert", _make_accumulator(factory, offset), args[-1])
    init = factory.make_map(offset, ())
    return _build_collecting(
        factory, ComprehensionKind.ENTRIES, (target, args[:2]), (test, args[-1]), (init, step)
    )


def _build_collecting(
    factory: NodeFactory,
    kind: ComprehensionKind,
    over: tuple[Node, _Args],
    written: tuple[Node | None, Node],
    parts: tuple[Node, Node],
) -> Comprehension:
    """A comprehension that collects: `step` where the test is true, else the accumulator as it is."""
    (target, names), (test, transform), (init, step) = over, written, parts
    offset = init.offset
    if test is not None:
        step = factory.make_call(offset, "_?_:_", test, step, _make_accumulator(factory, offset))
    loop = ComprehensionLoop(
        ACCUMULATOR, init, factory.make_literal(offset, True), step, _make_accumulator(factory, offset)
    )
    comprehension = factory.make_comprehension(offset, kind, target, _get_variable_names(names), loop)
    return factory.attach_written(comprehension, test, transform)


def _expand_opt_map(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    bound = _expand_bind(
        factory, offset, (args[0], factory.make_call(offset, "value", target=target), args[1])
    )
    transform = factory.make_call(offset, "optional.of", bound)
    return _build_optional_map(factory, (target, args), transform, flat=False)


def _expand_opt_flat_map(factory: NodeFactory, offset: int, target: Node, args: _Args) -> Node:
    transform = _expand_bind(
        factory, offset, (args[0], factory.make_call(offset, "value", target=target), args[1])
    )
    return _build_optional_map(factory, (target, args), transform, flat=True)


def _build_optional_map(
    factory: NodeFactory, written: tuple[Node, _Args], transform: Node, *, flat: bool
) -> Node:
    target, args = written
    offset = transform.offset
    there = factory.make_call(offset, "hasValue", target=target)
    spelled_out = factory.make_call(
        offset, "_?_:_", there, transform, factory.make_call(offset, "optional.none")
    )
    return factory.make_optional_map(target, (_get_simple_name(args[0]), args[1]), flat, spelled_out)


def _make_accumulator(factory: NodeFactory, offset: int) -> Ident:
    return factory.make_ident(offset, ACCUMULATOR)


def _get_variable_names(args: _Args) -> tuple[str, ...]:
    names = tuple(_get_simple_name(arg) for arg in args)
    if len(set(names)) != len(names):
        raise RejectedError((ExpressionIssue(args[1].offset, f"duplicate variable name: {names[1]}"),))
    return names


def _get_simple_name(arg: Node) -> str:
    if not isinstance(arg, Ident) or arg.name.startswith("."):
        raise RejectedError((ExpressionIssue(arg.offset, "argument must be a simple name"),))
    return arg.name


_MACROS: Mapping[tuple[str, int], _Macro] = MappingProxyType(
    {
        ("all", 2): _expand_all,
        ("all", 3): _expand_all,
        ("exists", 2): _expand_exists,
        ("exists", 3): _expand_exists,
        ("exists_one", 2): _expand_exists_one,
        ("exists_one", 3): _expand_exists_one,
        ("existsOne", 2): _expand_exists_one,
        ("existsOne", 3): _expand_exists_one,
        ("map", 2): _expand_map,
        ("map", 3): _expand_map,
        ("filter", 2): _expand_filter,
        ("transformList", 3): _expand_transform_list,
        ("transformList", 4): _expand_transform_list,
        ("transformMap", 3): _expand_transform_map,
        ("transformMap", 4): _expand_transform_map,
        ("transformMapEntry", 3): _expand_transform_entries,
        ("transformMapEntry", 4): _expand_transform_entries,
        ("optMap", 2): _expand_opt_map,
        ("optFlatMap", 2): _expand_opt_flat_map,
    }
)
