"""The rules for names, as functions over the sources and texts of the repository.

The rules are those of STYLE.md: functions are verbs, one word has one meaning, exceptions end in `Error`,
metaphors are not used. Exceptions are listed in `name_exceptions.py`, each with its reason.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.meta.rules import Finding
from tests.meta.tree import Source

MAX_MODULES = 16
"""Modules in one package, `__init__` included."""

# One letter of each word is in brackets, so that this file does not find itself.
_METAPHORS = (
    r"[b]irths?|[c]radles?|[d]oors?|[e]rrands?|[h]ouses?|[h]ouserules?|[l]ives|[o]ffices?|[p]hotographs?|[r]ooms?"
    r"|[s]cenes?|[s]eats?|[s]hops?|[s]ights?|[s]tor(?:y|ies)|[t]ales?|[t]ellers?|[w]ards?|[w]itness(?:es)?|[b]eats?"
)
_WORD = re.compile(rf"(?<![a-zA-Z])(?:{_METAPHORS})(?![a-zA-Z])", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

IRREGULAR_PARTICIPLES = frozenset(
    {
        "begun",
        "born",
        "bought",
        "bound",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "dealt",
        "done",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "flown",
        "forgotten",
        "found",
        "frozen",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "hung",
        "kept",
        "known",
        "laid",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "risen",
        "said",
        "seen",
        "sent",
        "shown",
        "slept",
        "sold",
        "spent",
        "spoken",
        "stolen",
        "stood",
        "sworn",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "withheld",
        "woken",
        "won",
        "worn",
        "written",
    }
)
VERBS_IN_ED = frozenset(
    {"bleed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "speed", "succeed"}
)
VERBS_IN_ING = frozenset({"bring", "ping", "ring", "string"})


def find_metaphors(texts: Iterable[tuple[PurePosixPath, str]]) -> Iterator[Finding]:
    """Metaphors in prose, messages and identifiers; snake_case and CamelCase count word by word."""
    for path, text in texts:
        for number, line in enumerate(text.splitlines(), start=1):
            for found in _WORD.finditer(_HUMP.sub(" ", line)):
                yield Finding(f"{path}:{number}", f"`{found[0]}` in: {line.strip()[:80]}")


def find_participles(sources: Iterable[Source]) -> Iterator[Finding]:
    """Functions and methods whose name begins with a participle; properties may be adjectives."""
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name):
                decorators = [ast.unparse(each) for each in node.decorator_list]
                if not any(each.endswith(("property", ".setter", ".getter")) for each in decorators):
                    yield Finding(
                        f"{source.path}:{node.name}", "a participle names a function; expected a verb"
                    )


def is_participle(name: str) -> bool:
    """Whether the first word of a function name is a participle."""
    if name.startswith("__") and name.endswith("__"):
        return False  # a name of Python
    words = name.strip("_").lower().split("_")
    first = words[0]
    if first in IRREGULAR_PARTICIPLES:
        return True
    if first.endswith("ed") and len(first) > 3:
        return first not in VERBS_IN_ED
    return len(words) == 1 and first.endswith("ing") and first not in VERBS_IN_ING


def find_repeated_classes(sources: Iterable[Source]) -> Iterator[Finding]:
    """Public classes that share their name with a class of another module."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(source.path))
    for name, where in places.items():
        if len(where) > 1:
            yield Finding(name, f"one name, {len(where)} classes: {', '.join(sorted(where))}")


def find_exceptions_without_suffix(sources: Iterable[Source]) -> Iterator[Finding]:
    """Exception classes whose name does not end in `Error`."""
    bases: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).split(".")[-1] for base in node.bases]
                places[node.name] = str(source.path)
    for name in bases:
        if not name.endswith("Error") and _is_exception(name, bases, frozenset()):
            yield Finding(
                f"{places[name]}:{name}", f"`{name}` is an exception; expected a name that ends in `Error`"
            )


def _is_exception(name: str, bases: dict[str, list[str]], seen: frozenset[str]) -> bool:
    if name in {"Exception", "BaseException"} or (name.endswith("Error") and name not in bases):
        return True
    if name in seen:
        return False
    return any(_is_exception(base, bases, seen | {name}) for base in bases.get(name, ()))


def find_large_packages(sources: Iterable[Source]) -> Iterator[Finding]:
    """Packages with more modules than one page can list."""
    sizes: dict[PurePosixPath, int] = defaultdict(int)
    for source in sources:
        sizes[source.path.parent] += 1
    for package, size in sizes.items():
        if size > MAX_MODULES:
            yield Finding(str(package), f"{size} modules, at most {MAX_MODULES}; group them by concern")
