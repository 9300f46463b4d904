"""The rules for source files: each is a function from one source to findings.

Rules for this file: a rule reads one source at a time and nothing of the repository around it, so that
`test_rules.py` can show each of them a small bad example. Exceptions are listed in `allowances.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from tests.meta.tree import Source, contracts, pure_packages

FILE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 6
PACKAGE_DOCSTRING_SENTENCES = 3
EMPTY_WORDS = frozenset(
    {"manager", "helper", "util", "common", "misc", "info", "data", "handler", "impl", "wrapper"}
)
IO_CALLS = frozenset({"open", "print", "input"})
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Finding(NamedTuple):
    """What is wrong, and the name (file, or file and definition) by which an exception can be made for it."""

    where: str
    what: str


Rule = Callable[[Source], Iterator[Finding]]


def file_size(source: Source) -> Iterator[Finding]:
    lines = source.text.count("\n")
    if lines > FILE_LINES:
        yield Finding(str(source.path), f"{lines} lines, at most {FILE_LINES}")


def function_size(source: Source) -> Iterator[Finding]:
    for name, function in _functions(source):
        lines = _lines(function)
        if ast.get_docstring(function, clean=False) is not None:
            lines -= _lines(function.body[0])
        if lines > FUNCTION_LINES:
            yield Finding(name, f"{lines} lines without docstring, at most {FUNCTION_LINES}")


def parameter_count(source: Source) -> Iterator[Finding]:
    for name, function in _functions(source):
        arguments = function.args
        given = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        count = len([a for a in given if a not in ("self", "cls")])
        if count > PARAMETERS:
            yield Finding(name, f"{count} parameters, at most {PARAMETERS}")


def empty_words(source: Source) -> Iterator[Finding]:
    """Names of modules and classes say what a thing is; these words do not."""
    named = [(str(source.path), part.removesuffix(".py")) for part in source.path.parts]
    named += [(f"{source.path}:{c.name}", c.name) for c in source.nodes if isinstance(c, ast.ClassDef)]
    for where, name in named:
        found = EMPTY_WORDS.intersection(_words(name))
        if found:
            yield Finding(where, f"`{name}` contains the empty word `{min(found)}`")


def docstring(source: Source) -> Iterator[Finding]:
    text = ast.get_docstring(source.tree)
    if not text or not text.strip():
        yield Finding(str(source.path), "no module docstring; its first line says what the module is")


def package_docstring(source: Source) -> Iterator[Finding]:
    if source.path.name != "__init__.py":
        return
    sentences = re.findall(r"[.!?](?=\s|$)", ast.get_docstring(source.tree) or "")
    if len(sentences) < PACKAGE_DOCSTRING_SENTENCES:
        yield Finding(
            str(source.path),
            f"expected {PACKAGE_DOCSTRING_SENTENCES} sentences: what the package contains, "
            "what it must not contain, who may import it",
        )


def pure_imports(source: Source) -> Iterator[Finding]:
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
                yield Finding(str(source.path), f"line {node.lineno}: a pure package imports `{module}`")


def pure_calls(source: Source) -> Iterator[Finding]:
    """Files, the terminal and the current time can be reached without a forbidden import."""
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id=name) if name in IO_CALLS:
                called = name
            case ast.Attribute(value=ast.Name(id="datetime" | "date" as owner), attr=name) if (
                name in CLOCK_CALLS
            ):
                called = f"{owner}.{name}"
            case _:
                continue
        yield Finding(str(source.path), f"line {node.lineno}: a pure package calls `{called}`")


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
    return Source(path, "").package in pure_packages()


RULES: dict[str, tuple[Rule, Callable[[PurePosixPath], bool]]] = {
    "file-size": (file_size, anywhere),
    "function-size": (function_size, in_product),
    "parameter-count": (parameter_count, in_product),
    "empty-words": (empty_words, anywhere),
    "docstring": (docstring, in_product),
    "package-docstring": (package_docstring, in_src),
    "pure-imports": (pure_imports, in_pure),
    "pure-calls": (pure_calls, in_pure),
}
"""Every rule by name, with the files it applies to."""
