"""The rules of the house as functions: a source goes in, complaints come out.

Rules for this file: a rule looks at one source at a time and knows nothing of the repository around it, so
that each can be shown a small sinner in `test_rules.py`. What is excused stands in `allowances.py`, not here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from tests.meta.tree import Source, contracts, pure_rooms

FILE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 6
CHARTER_SENTENCES = 3
EMPTY_WORDS = frozenset(
    {"manager", "helper", "util", "common", "misc", "info", "data", "handler", "impl", "wrapper"}
)
WORLD_CALLS = frozenset({"open", "print", "input"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Complaint(NamedTuple):
    """What is wrong, and the name (file, or file and definition) under which it could be excused."""

    where: str
    what: str


Rule = Callable[[Source], Iterator[Complaint]]


def file_size(source: Source) -> Iterator[Complaint]:
    lines = source.text.count("\n")
    if lines > FILE_LINES:
        yield Complaint(str(source.path), f"{lines} lines, the house allows {FILE_LINES}")


def function_size(source: Source) -> Iterator[Complaint]:
    for name, function in _functions(source):
        lines = _lines(function)
        if ast.get_docstring(function, clean=False) is not None:
            lines -= _lines(function.body[0])
        if lines > FUNCTION_LINES:
            yield Complaint(name, f"{lines} lines without docstring, the house allows {FUNCTION_LINES}")


def parameter_count(source: Source) -> Iterator[Complaint]:
    for name, function in _functions(source):
        arguments = function.args
        given = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([a for a in given if a not in ("self", "cls")])
        if count > PARAMETERS:
            yield Complaint(name, f"{count} parameters, the house allows {PARAMETERS}")


def empty_words(source: Source) -> Iterator[Complaint]:
    """Names of modules and classes say what a thing is; these words say that nobody thought about it."""
    named = [(str(source.path), part.removesuffix(".py")) for part in source.path.parts]
    named += [(f"{source.path}:{c.name}", c.name) for c in source.nodes if isinstance(c, ast.ClassDef)]
    for where, name in named:
        found = EMPTY_WORDS.intersection(_words(name))
        if found:
            yield Complaint(where, f"`{name}` contains the empty word `{min(found)}`")


def docstring(source: Source) -> Iterator[Complaint]:
    text = ast.get_docstring(source.tree)
    if not text or not text.strip():
        yield Complaint(str(source.path), "no module docstring; its first line says what lives here")


def charter(source: Source) -> Iterator[Complaint]:
    if source.path.name != "__init__.py":
        return
    sentences = re.findall(r"[.!?](?=\s|$)", ast.get_docstring(source.tree) or "")
    if len(sentences) < CHARTER_SENTENCES:
        yield Complaint(
            str(source.path),
            f"a charter has {CHARTER_SENTENCES} sentences: what lives here, what may not, who may import it",
        )


def pure_imports(source: Source) -> Iterator[Complaint]:
    """The forbidden modules of the `pure` contract; its patterns do not reach the `__init__` files."""
    forbidden = set(contracts()["pure"]["forbidden_modules"])
    for node in source.nodes:
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            continue
        for module in imported:
            if module.partition(".")[0] in forbidden:
                yield Complaint(str(source.path), f"line {node.lineno}: a pure package imports `{module}`")


def pure_calls(source: Source) -> Iterator[Complaint]:
    """Reading files, writing to the terminal and asking for the time need no forbidden import."""
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) if name in WORLD_CALLS:
                called = name
            case ast.Attribute(value=ast.Name(id="datetime" | "date" as owner), attr=name) if (
                name in CLOCK_CALLS
            ):
                called = f"{owner}.{name}"
            case _:
                continue
        yield Complaint(str(source.path), f"line {node.lineno}: a pure package calls `{called}`")


def _functions(source: Source) -> Iterator[tuple[str, Function]]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{source.path}:{node.name}", node


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _words(name: str) -> Iterator[str]:
    for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name):
        yield word.lower()
        yield word.lower().removesuffix("s")


def in_src(path: PurePosixPath) -> bool:
    return path.parts[0] == "src"


def in_product(path: PurePosixPath) -> bool:
    return path.parts[0] in ("src", "bench", "examples")


def anywhere(path: PurePosixPath) -> bool:
    return True


def in_pure(path: PurePosixPath) -> bool:
    return Source(path, "").room in pure_rooms()


RULES: dict[str, tuple[Rule, Callable[[PurePosixPath], bool]]] = {
    "file-size": (file_size, anywhere),
    "function-size": (function_size, in_product),
    "parameter-count": (parameter_count, in_product),
    "empty-words": (empty_words, anywhere),
    "docstring": (docstring, in_product),
    "charter": (charter, in_src),
    "pure-imports": (pure_imports, in_pure),
    "pure-calls": (pure_calls, in_pure),
}
"""Every rule by name, with the part of the repository it holds in."""
