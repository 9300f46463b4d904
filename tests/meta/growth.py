"""Finds unbounded memory in a source: functions with unbounded caches, and containers that only grow.

Theory of operation: a cache is a container that something is put into and nothing is ever taken out of. That
can be read from a source: `functools.cache` and `lru_cache` without a number; a container of a module that
its functions write to; an attribute that begins as a container, that methods put something into, and that
nothing in the file removes from, replaces, or limits by a `CacheBound`. Such a container is correct only if
its owner is short-lived or the number of entries is limited. `lifetimes.py` lists the reason for each.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from tests.meta.rules import Finding
from tests.meta.tree import Source

MAKERS = frozenset({"dict", "set", "list", "defaultdict", "OrderedDict", "Counter", "deque"})
GROWING = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})
SHRINKING = frozenset(
    {"pop", "popitem", "popleft", "discard", "remove", "clear", "difference_update", "intersection_update"}
)
UNBOUNDED = frozenset({"cache", "functools.cache"})
INITIALIZERS = frozenset({"__init__", "__post_init__"})
_Assigned = ast.Assign | ast.AnnAssign | ast.AugAssign
NameOf = Callable[[ast.expr], str | None]


def unbounded_caches(source: Source) -> Iterator[Finding]:
    """Functions with an unbounded cache; a function without arguments has one result."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            if any(ast.unparse(each) in UNBOUNDED for each in decorators) and _has_parameters(node):
                what = f"`{node.name}` caches every result; expected `lru_cache(maxsize=...)`"
                yield Finding(f"{source.path}:{node.name}", what)
        elif isinstance(node, ast.Call) and _called(node) == "lru_cache":
            given = [*node.args, *(each.value for each in node.keywords if each.arg == "maxsize")]
            if any(isinstance(each, ast.Constant) and each.value is None for each in given):
                yield Finding(f"{source.path}:lru_cache", "`lru_cache(None)` caches every result")


def growing_modules(source: Source) -> Iterator[Finding]:
    """Containers of a module that functions add to and remove nothing from."""
    made = {
        target.id
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and _is_container(node.value)
        for target in _targets(node)
        if isinstance(target, ast.Name)
    }
    inside = [
        each
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for each in ast.walk(node)
    ]
    grown = {name for name in _grown(inside, _name_of) if name in made}
    for name in sorted(grown - set(_shrunk(source.nodes, _name_of))):
        yield Finding(f"{source.path}:{name}", f"`{name}` only grows; expected a `CacheBound` or a removal")


def growing_attributes(source: Source) -> Iterator[Finding]:
    """Attributes that start as containers, and that methods add to and remove nothing from."""
    shrunk = set(_shrunk(source.nodes, _attribute_of))
    for owner in source.nodes:
        if isinstance(owner, ast.ClassDef):
            methods = [
                node for node in owner.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            later = [method for method in methods if method.name not in INITIALIZERS]
            inside = [node for method in later for node in ast.walk(method)]
            grown = set(_grown(inside, _attribute_of)) - shrunk - set(_replaced(methods))
            for name in sorted(grown & set(_initialized(owner, methods))):
                what = f"`{owner.name}.{name}` only grows; expected a `CacheBound`, a removal, or a lifetime"
                yield Finding(f"{source.path}:{owner.name}.{name}", what)


# --- operations on containers ---


def _has_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    return bool(
        arguments.posonlyargs or arguments.args or arguments.kwonlyargs or arguments.vararg or arguments.kwarg
    )


def _called(call: ast.Call) -> str:
    function = call.func
    while isinstance(function, ast.Subscript):
        function = function.value
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_container(value: ast.expr) -> bool:
    match value:
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            return True
        case ast.Tuple(elts=parts):
            return any(map(_is_container, parts))
        case ast.IfExp(body=one, orelse=other):
            return _is_container(one) or _is_container(other)
        case ast.Call() if _called(value) == "field":
            made = [given.value for given in value.keywords if given.arg == "default_factory"]
            return any(word in ast.unparse(each) for each in made for word in MAKERS)
        case ast.Call():
            return _called(value) in MAKERS and not any(given.arg == "maxlen" for given in value.keywords)
    return False


def _targets(node: _Assigned) -> Iterator[ast.expr]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _attribute_of(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else None


def _name_of(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _known(name: str | None) -> Iterator[str]:
    if name is not None:
        yield name


def _grown(nodes: Iterable[ast.AST], name_of: NameOf) -> Iterator[str]:
    """Names of containers that something is added to."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AugAssign):
            for target in _targets(node):
                if isinstance(target, ast.Subscript):
                    yield from _known(name_of(target.value))
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.BitOr):
            yield from _known(name_of(node.target))
        if isinstance(node, ast.Attribute) and node.attr in GROWING:
            yield from _known(name_of(node.value))


def _shrunk(nodes: Iterable[ast.AST], name_of: NameOf) -> Iterator[str]:
    """Names of containers that something is removed from, or that a bound limits."""
    for node in nodes:
        if isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield from _known(name_of(target.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub | ast.BitAnd):
            yield from _known(name_of(node.target))
        elif isinstance(node, ast.Attribute) and node.attr in SHRINKING:
            yield from _known(name_of(node.value))
        elif isinstance(node, ast.Call) and _called(node) == "put" and node.args:
            yield from _known(name_of(node.args[0]))


def _initialized(
    owner: ast.ClassDef, methods: Iterable[ast.FunctionDef | ast.AsyncFunctionDef]
) -> Iterator[str]:
    """The attributes that are initialized as containers."""
    for field in owner.body:
        if isinstance(field, ast.AnnAssign) and field.value and _is_container(field.value):
            yield ast.unparse(field.target)
    for method in methods:
        for node in ast.walk(method) if method.name in INITIALIZERS else ():
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _is_container(node.value):
                yield from filter(None, map(_attribute_of, _targets(node)))


def _replaced(methods: Iterable[ast.FunctionDef | ast.AsyncFunctionDef]) -> Iterator[str]:
    """The attributes that another method assigns anew."""
    for method in methods:
        for node in ast.walk(method) if method.name not in INITIALIZERS else ():
            if isinstance(node, ast.Assign | ast.AnnAssign):
                yield from filter(None, map(_attribute_of, _targets(node)))
