"""Macros: calls that are rewritten before anything is checked.

Theory of operation: a macro is found by name, number of arguments and whether it has a target. Each rewrites
itself into the loop that the CEL specification gives it; types and worst-case costs are computed on that
loop. What runs is not the loop but the macro as it was written; see `folds`.

Rules for this file: nothing is evaluated and nothing is checked beyond "is this a simple name".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from dray.cel.faults import RejectedError
from dray.cel.source import Issue
from dray.cel.syntax.ast import Fold, FoldKind, Ident, Loop, Node, Select
from dray.cel.syntax.node_factory import Maker

ACCU: Final = "@result"
"""The accumulator; no name in the text can be equal to it."""
UNUSED: Final = "#unused"

_Args = tuple[Node, ...]
_Macro = Callable[[Maker, int, Node, _Args], Node]


def expanded(make: Maker, offset: int, function: str, target: Node | None, args: _Args) -> Node | None:
    """The node a macro stands for, or nothing when the call is no macro."""
    if target is None:
        return _has(make, offset, args[0]) if function == "has" and len(args) == 1 else None
    if isinstance(target, Ident) and target.name == "cel" and function == "bind" and len(args) == 3:
        return _bind(make, offset, args)
    macro = _MACROS.get((function, len(args)))
    return None if macro is None else macro(make, offset, target, args)


def _has(make: Maker, offset: int, arg: Node) -> Node:
    if not isinstance(arg, Select) or arg.test or arg.optional:
        raise RejectedError((Issue(arg.offset, "invalid argument to has() macro"),))
    return make.presence(offset, arg.operand, arg.field)


def _bind(make: Maker, offset: int, args: _Args) -> Node:
    name = _name(args[0])
    loop = Loop(name, args[1], make.literal(offset, False), make.ident(offset, name), args[2])
    nothing = make.items(offset, (), frozenset())
    fold = make.fold(offset, FoldKind.BIND, nothing, (UNUSED,), loop)
    return make.written(fold, None, args[2])


def _all(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    accu = _accu(make, offset)
    loop = Loop(
        ACCU,
        make.literal(offset, True),
        make.call(offset, "@not_strictly_false", accu),
        make.call(offset, "_&&_", _accu(make, offset), args[-1]),
        _accu(make, offset),
    )
    return _quantifier(make, offset, FoldKind.ALL, (target, args), loop)


def _exists(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    missing = make.call(offset, "!_", _accu(make, offset))
    loop = Loop(
        ACCU,
        make.literal(offset, False),
        make.call(offset, "@not_strictly_false", missing),
        make.call(offset, "_||_", _accu(make, offset), args[-1]),
        _accu(make, offset),
    )
    return _quantifier(make, offset, FoldKind.EXISTS, (target, args), loop)


def _exists_one(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    more = make.call(offset, "_+_", _accu(make, offset), make.literal(offset, 1))
    loop = Loop(
        ACCU,
        make.literal(offset, 0),
        make.literal(offset, True),
        make.call(offset, "_?_:_", args[-1], more, _accu(make, offset)),
        make.call(offset, "_==_", _accu(make, offset), make.literal(offset, 1)),
    )
    return _quantifier(make, offset, FoldKind.EXISTS_ONE, (target, args), loop)


def _quantifier(make: Maker, offset: int, kind: FoldKind, written: tuple[Node, _Args], loop: Loop) -> Fold:
    target, args = written
    fold = make.fold(offset, kind, target, _names(args[:-1]), loop)
    return make.written(fold, args[-1], None)


def _map(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    test = args[1] if len(args) == 3 else None
    return _listing(make, offset, (target, args[:1]), test, args[-1])


def _filter(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    kept = make.ident(offset, _name(args[0]))
    return _listing(make, offset, (target, args[:1]), args[1], kept)


def _transform_list(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    return _listing(make, offset, (target, args[:2]), test, args[-1])


def _listing(make: Maker, offset: int, over: tuple[Node, _Args], test: Node | None, made: Node) -> Fold:
    one = make.items(offset, (made,), frozenset())
    step: Node = make.call(offset, "_+_", _accu(make, offset), one)
    init = make.items(offset, (), frozenset())
    return _building(make, FoldKind.LIST, over, (test, made), (init, step))


def _transform_map(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    key = make.ident(offset, _name(args[0]))
    step = make.call(offset, "cel.@mapInsert", _accu(make, offset), key, args[-1])
    init = make.entries(offset, ())
    return _building(make, FoldKind.MAP, (target, args[:2]), (test, args[-1]), (init, step))


def _transform_entries(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    test = args[2] if len(args) == 4 else None
    step = make.call(offset, "cel.@mapInsert", _accu(make, offset), args[-1])
    init = make.entries(offset, ())
    return _building(make, FoldKind.ENTRIES, (target, args[:2]), (test, args[-1]), (init, step))


def _building(
    make: Maker,
    kind: FoldKind,
    over: tuple[Node, _Args],
    written: tuple[Node | None, Node],
    parts: tuple[Node, Node],
) -> Fold:
    """A fold that collects: `step` where the test holds, else the accumulator as it is."""
    (target, names), (test, made), (init, step) = over, written, parts
    offset = init.offset
    if test is not None:
        step = make.call(offset, "_?_:_", test, step, _accu(make, offset))
    loop = Loop(ACCU, init, make.literal(offset, True), step, _accu(make, offset))
    fold = make.fold(offset, kind, target, _names(names), loop)
    return make.written(fold, test, made)


def _opt_map(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    bound = _bind(make, offset, (args[0], make.call(offset, "value", target=target), args[1]))
    made = make.call(offset, "optional.of", bound)
    return _optional(make, (target, args), made, flat=False)


def _opt_flat_map(make: Maker, offset: int, target: Node, args: _Args) -> Node:
    made = _bind(make, offset, (args[0], make.call(offset, "value", target=target), args[1]))
    return _optional(make, (target, args), made, flat=True)


def _optional(make: Maker, written: tuple[Node, _Args], made: Node, *, flat: bool) -> Node:
    target, args = written
    offset = made.offset
    there = make.call(offset, "hasValue", target=target)
    spelled_out = make.call(offset, "_?_:_", there, made, make.call(offset, "optional.none"))
    return make.optional_map(target, (_name(args[0]), args[1]), flat, spelled_out)


def _accu(make: Maker, offset: int) -> Ident:
    return make.ident(offset, ACCU)


def _names(args: _Args) -> tuple[str, ...]:
    names = tuple(_name(arg) for arg in args)
    if len(set(names)) != len(names):
        raise RejectedError((Issue(args[1].offset, f"duplicate variable name: {names[1]}"),))
    return names


def _name(arg: Node) -> str:
    if not isinstance(arg, Ident) or arg.name.startswith("."):
        raise RejectedError((Issue(arg.offset, "argument must be a simple name"),))
    return arg.name


_MACROS: Mapping[tuple[str, int], _Macro] = MappingProxyType(
    {
        ("all", 2): _all,
        ("all", 3): _all,
        ("exists", 2): _exists,
        ("exists", 3): _exists,
        ("exists_one", 2): _exists_one,
        ("exists_one", 3): _exists_one,
        ("existsOne", 2): _exists_one,
        ("existsOne", 3): _exists_one,
        ("map", 2): _map,
        ("map", 3): _map,
        ("filter", 2): _filter,
        ("transformList", 3): _transform_list,
        ("transformList", 4): _transform_list,
        ("transformMap", 3): _transform_map,
        ("transformMap", 4): _transform_map,
        ("transformMapEntry", 3): _transform_entries,
        ("transformMapEntry", 4): _transform_entries,
        ("optMap", 2): _opt_map,
        ("optFlatMap", 2): _opt_flat_map,
    }
)
