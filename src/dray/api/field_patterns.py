"""Field patterns such as `spec.devices[].taints`: find and change the fields they name.

Theory of operation: a pattern is a chain of steps, each a field, every item of a list (`[]`) or every entry
of a map (`{}`). `find_fields` lists the paths where the named field is set. `change_holders` rebuilds only
the branch that changes and returns the same object when nothing does, so that a call without effect is cheap.
Patterns read structs and documents alike, by the names on the wire.

Rules for this file: no gates and no defaults; those are tables elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args

import msgspec

from dray.api.fields import ROOT, FieldPath

HolderChange = Callable[[Any], Any]
_STEP = re.compile(r"([A-Za-z]+)(\[\]|\{\})?(?:\.|$)")


@lru_cache(maxsize=512)
def _parse_pattern(pattern: str) -> tuple[tuple[str, str], ...]:
    steps = tuple((name, many or "") for name, many in _STEP.findall(pattern))
    if not steps or ".".join(name + many for name, many in steps) != pattern:
        raise ValueError(f"`{pattern}` is not a field pattern like `spec.devices[].taints`")
    return steps


@lru_cache(maxsize=512)
def _map_attribute_names(cls: type) -> Mapping[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(cls)}


def get_attribute_name(cls: type, wire_name: str) -> str:
    """Return the attribute of a struct for a field, given its name on the wire."""
    return _map_attribute_names(cls)[wire_name]


def get_nested_struct(cls: type, wire_name: str) -> type[msgspec.Struct]:
    """Return the struct type of a field: its own type, or that of its list items or map values."""
    kinds = [field.type for field in msgspec.structs.fields(cls) if field.encode_name == wire_name]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind
        kinds += get_args(kind)
    raise ValueError(f"`{wire_name}` of {cls.__name__} holds no struct")


def _get(node: Any, name: str) -> Any:
    """Return a field; None where it is unset, and where a document has a value without fields."""
    if isinstance(node, dict):
        return node.get(name)
    return getattr(node, get_attribute_name(type(node), name)) if isinstance(node, msgspec.Struct) else None


def _put(node: Any, name: str, value: Any) -> Any:
    if isinstance(node, dict):
        return {**node, name: value}
    return msgspec.structs.replace(node, **{get_attribute_name(type(node), name): value})


@lru_cache(maxsize=512)
def _get_unset_value(cls: type, wire_name: str) -> Any:
    """Return the value of a struct's field when nothing is given."""
    known = next(field for field in msgspec.structs.fields(cls) if field.encode_name == wire_name)
    return known.default if known.default is not msgspec.NODEFAULT else {}


def _is_set(node: Any, name: str) -> bool:
    if isinstance(node, dict):
        return node.get(name) not in (None, [], {}, ())
    return isinstance(node, msgspec.Struct) and bool(_get(node, name) != _get_unset_value(type(node), name))


def find_fields(root: Any, pattern: str) -> tuple[str, ...]:
    """Return the paths where the field named by a pattern is set."""
    return tuple(str(path) for path in _find_fields(root, _parse_pattern(pattern), ROOT))


def _find_fields(node: Any, steps: tuple[tuple[str, str], ...], path: FieldPath) -> Iterator[FieldPath]:
    (name, many), rest = steps[0], steps[1:]
    if not rest:
        if _is_set(node, name):
            yield path.child(name)
        return
    value, here = _get(node, name), path.child(name)
    if many == "[]" and isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _find_fields(item, rest, here.index(i))
    elif many == "{}" and isinstance(value, dict):
        for key, item in value.items():
            yield from _find_fields(item, rest, here.key(key))
    elif not many:
        yield from _find_fields(value, rest, here)


def change_holders(root: Any, pattern: str, change: HolderChange) -> Any:
    """Return the object with `change` applied to every holder of the field named by a pattern."""
    return _change_holders(root, _parse_pattern(pattern)[:-1], change)


def _change_holders(node: Any, steps: tuple[tuple[str, str], ...], change: HolderChange) -> Any:
    if not steps:
        return change(node) if isinstance(node, dict | msgspec.Struct) else node
    (name, many), rest = steps[0], steps[1:]
    old = _get(node, name)
    if not old:
        return node
    new: Any = old
    if many == "[]" and isinstance(old, list | tuple):
        if rest and not any(_get(item, rest[0][0]) for item in old):
            return node
        items = [_change_holders(item, rest, change) for item in old]
        if any(now is not before for now, before in zip(items, old, strict=True)):
            new = type(old)(items)
    elif many == "{}" and isinstance(old, dict):
        entries = {key: _change_holders(item, rest, change) for key, item in old.items()}
        if any(entries[key] is not old[key] for key in old):
            new = entries
    elif not many:
        new = _change_holders(old, rest, change)
    return node if new is old else _put(node, name, new)


def clear_fields(root: Any, pattern: str) -> Any:
    """Return the object without the field named by a pattern, in all places."""
    name = _parse_pattern(pattern)[-1][0]

    def clear(holder: Any) -> Any:
        if isinstance(holder, dict):
            return {key: value for key, value in holder.items() if key != name} if name in holder else holder
        return (
            _put(holder, name, _get_unset_value(holder.__class__, name)) if _is_set(holder, name) else holder
        )

    return change_holders(root, pattern, clear)
