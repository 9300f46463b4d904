"""Paths of fields in documents, written `spec.requests[0].count` or `metadata.labels["a.b/c"]`."""

from __future__ import annotations

import copy
import re
from itertools import pairwise
from typing import Any

Path = tuple[str | int, ...]

REMOVED = "<removed>"
"""The value that a field is given to leave it out."""

_STEP = re.compile(r'\[(\d+|-)\]|\["([^"]*)"\]|\.?([^.\[]+)')
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def parse_path(text: str) -> Path:
    """Read a path; `[-]` is one position after the end of a list."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        assert found is not None, f"`{text}` is no path"
        number, key, name = found.groups()
        steps.append(key if key is not None else name if name is not None else _read_index(number))
        position = found.end()
    return tuple(steps)


def _read_index(number: str) -> int:
    return -1 if number == "-" else int(number)


def format_path(path: Path) -> str:
    """Write a path."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def get_value(document: Any, path: Path) -> Any:
    """The value at a path that exists."""
    for step in path:
        document = document[step]
    return document


def set_value(document: Any, path: Path, value: Any) -> Any:
    """A copy of a document with another value at a path; objects on the way are created."""
    changed = copy.deepcopy(document)
    target = changed
    for step, following in pairwise(path):
        if isinstance(step, int):
            target = target[step]
        else:
            target = target.setdefault(step, [] if isinstance(following, int) else {})
    last = path[-1]
    if value == REMOVED:
        target.pop(last, None) if isinstance(last, str) else target.pop(last)
    elif isinstance(last, int) and last == -1:
        target.append(copy.deepcopy(value))
    else:
        target[last] = copy.deepcopy(value)
    return changed
