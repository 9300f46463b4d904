"""JSON patch (RFC 6902): a list of operations on locations named by JSON pointers (RFC 6901).

Theory of operation: operations work on a copy that shares everything with the document until the first
change: then the objects and lists on the path are copied, once, and changed from there on. So the original
never changes, and ten thousand operations on one long list copy it once. Positions in lists may count from
the end (`-1` is the last one), as Kubernetes accepts them. A patch may copy values, and so grow a document
far beyond its own size: the size of copies is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dray.api.json_text import MAX_DEPTH, read_json, write_json
from dray.server.patch.errors import TOO_LARGE, PatchError, build_inapplicable, build_malformed
from dray.server.patch.limits import check_depth, measure_depth

MAX_OPERATIONS: Final = 10_000
MAX_COPIED: Final = 3 * 1024 * 1024
"""How many bytes of JSON all copies of a patch may have together."""

Tokens = tuple[str, ...]

_INDEX = re.compile(r"-?(0|[1-9][0-9]{0,8})", re.ASCII)
_STRAY_TILDE = re.compile(r"~(?![01])")
_ABSENT: Final = object()


class _Operation(NamedTuple):
    name: str
    path: Tokens
    value: Any = _ABSENT
    source: Tokens = ()


def apply(document: Mapping[str, Any], operations: Any) -> dict[str, Any]:
    """Apply all operations; raises `PatchError` and changes nothing when one fails."""
    draft = _WorkingCopy(document)
    for position, step in enumerate(_parse_operations(operations)):
        try:
            _OPERATIONS[step.name](draft, step)
        except _UnfitOperationError as unfit:
            raise build_inapplicable(
                f"operation {position} (`{step.name}` {_format_pointer(step.path)}): {unfit}"
            ) from None
    if not isinstance(draft.document, dict):
        raise build_inapplicable("the document is no longer an object")
    return draft.document


def parse_pointer(text: Any) -> Tokens:
    """Parse a JSON pointer to its tokens; raises `PatchError`."""
    if not isinstance(text, str) or (text and not text.startswith("/")) or _STRAY_TILDE.search(text):
        raise build_inapplicable(
            f"`{text}` is not a JSON pointer; expected for example `/metadata/labels/app`"
        )
    tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in text.split("/")[1:])
    if len(tokens) > MAX_DEPTH:
        raise build_malformed(f"a JSON pointer leads more than {MAX_DEPTH} levels deep")
    return tokens


class _UnfitOperationError(Exception):
    """An operation does not fit the document in its current state."""


def _parse_operations(operations: Any) -> list[_Operation]:
    if not isinstance(operations, list):
        raise build_malformed("a JSON patch is a list of operations; for an object use a merge patch")
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            TOO_LARGE,
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
        )
    check_depth(operations)
    return [_parse_operation(position, given) for position, given in enumerate(operations)]


def _parse_operation(position: int, given: Any) -> _Operation:
    if not isinstance(given, dict):
        raise build_malformed(f"operation {position} is not an object")
    name = given.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        known = ", ".join(f"`{known}`" for known in _OPERATIONS)
        raise build_inapplicable(f"operation {position}: unknown `op` `{name}`; expected one of {known}")
    if "path" not in given:
        raise build_inapplicable(f"operation {position} (`{name}`): `path` is missing")
    path = parse_pointer(given["path"])
    if name in ("move", "copy"):
        if "from" not in given:
            raise build_inapplicable(f"operation {position} (`{name}`): `from` is missing")
        return _Operation(name, path, source=parse_pointer(given["from"]))
    if name != "remove" and "value" not in given:
        raise build_inapplicable(f"operation {position} (`{name}`): `value` is missing")
    return _Operation(name, path, given.get("value"))


def _format_pointer(tokens: Tokens) -> str:
    path = "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
    return f"`{path}`"


def _get_value(document: Any, path: Tokens) -> Any:
    for token in path:
        document = _get_child(document, token)
    return document


def _get_child(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        if token not in container:
            raise _UnfitOperationError(f"there is no `{token}`")
        return container[token]
    if isinstance(container, list):
        return container[_parse_index(container, token, len(container) - 1)]
    raise _UnfitOperationError(f"`{token}` is looked for in what is neither an object nor a list")


def _parse_index(container: list[Any], token: str, last: int) -> int:
    if not _INDEX.fullmatch(token):
        raise _UnfitOperationError(f"`{token}` is not a position in a list")
    position = int(token)
    if position < 0:
        position += last + 1
    if not 0 <= position <= last:
        raise _UnfitOperationError(f"position {token} is outside a list of {len(container)}")
    return position


class _WorkingCopy:
    """A document being changed: shared parts are copied before their first change."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document: Any = document
        self._owned: set[int] = set()
        self._copied = 0

    def add(self, step: _Operation) -> None:
        self._put_value(step.path, step.value)

    def remove(self, step: _Operation) -> None:
        self._remove_value(step.path)

    def replace(self, step: _Operation) -> None:
        _get_value(self.document, step.path)
        _check_not_nested(step.path, step.value)
        if not step.path:
            self.document = step.value
            return
        container = self._get_container(step.path)
        if isinstance(container, dict):
            container[step.path[-1]] = step.value
        else:
            container[_parse_index(container, step.path[-1], len(container) - 1)] = step.value

    def move(self, step: _Operation) -> None:
        value = _get_value(self.document, step.source)
        if step.path == step.source:
            return
        if step.path[: len(step.source)] == step.source:
            raise _UnfitOperationError(f"{_format_pointer(step.source)} cannot be moved into itself")
        self._remove_value(step.source)
        self._put_value(step.path, value)

    def copy(self, step: _Operation) -> None:
        text = write_json(_get_value(self.document, step.source))
        self._copied += len(text)
        if self._copied > MAX_COPIED:
            raise PatchError(TOO_LARGE, f"the copies of the patch exceed {MAX_COPIED} bytes")
        self._put_value(step.path, read_json(text))

    def test(self, step: _Operation) -> None:
        try:
            there = _get_value(self.document, step.path)
        except _UnfitOperationError:
            if step.value is None:
                return  # Kubernetes lets a test for `null` pass where nothing is
            raise
        if not _is_equal(there, step.value):
            raise _UnfitOperationError("the value there is another one")

    def _put_value(self, path: Tokens, value: Any) -> None:
        _check_not_nested(path, value)
        if not path:
            self.document = value
            return
        container, token = self._get_container(path), path[-1]
        if isinstance(container, dict):
            container[token] = value
        else:
            container.insert(
                len(container) if token == "-" else _parse_index(container, token, len(container)), value
            )

    def _remove_value(self, path: Tokens) -> None:
        if not path:
            raise _UnfitOperationError("the whole document cannot be removed")
        _get_value(self.document, path)
        container, token = self._get_container(path), path[-1]
        del container[
            token if isinstance(container, dict) else _parse_index(container, token, len(container) - 1)
        ]

    def _get_container(self, path: Tokens) -> Any:
        """Return the object or list in which the path ends, as a part that may be changed."""
        container = self.document = self._take_ownership(self.document, path[0])
        for token, inner in pairwise(path):
            child = self._take_ownership(_get_child(container, token), inner)
            if isinstance(container, dict):
                container[token] = child
            else:
                container[_parse_index(container, token, len(container) - 1)] = child
            container = child
        return container

    def _take_ownership(self, container: Any, token: str) -> Any:
        if id(container) in self._owned:
            return container
        if not isinstance(container, (dict, list)):
            raise _UnfitOperationError(f"`{token}` is looked for in what is neither an object nor a list")
        ours = container.copy()
        self._owned.add(id(ours))
        return ours


def _check_not_nested(path: Tokens, value: Any) -> None:
    if len(path) + measure_depth(value) > MAX_DEPTH:
        raise _UnfitOperationError(f"the document would be nested more than {MAX_DEPTH} levels deep")


def _is_equal(a: Any, b: Any) -> bool:
    """Compare JSON values, where `true` is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_equal(value, b[name]) for name, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


_OPERATIONS: Mapping[str, Callable[[_WorkingCopy, _Operation], None]] = {
    "add": _WorkingCopy.add,
    "remove": _WorkingCopy.remove,
    "replace": _WorkingCopy.replace,
    "move": _WorkingCopy.move,
    "copy": _WorkingCopy.copy,
    "test": _WorkingCopy.test,
}
