"""The rules for names hold in the repository, and each of them finds its bad example."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.meta import name_exceptions
from tests.meta.names import (
    find_exceptions_without_suffix,
    find_large_packages,
    find_metaphors,
    find_participles,
    find_repeated_classes,
    is_participle,
)
from tests.meta.tree import Source, sources, texts

READ_FOR_WORDS = ("src", "docs", "tests", "bench", "examples", "deploy", "tools")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "STYLE.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "Makefile",
    "pyproject.toml",
)


@cache
def product() -> tuple[Source, ...]:
    return tuple(source for source in sources() if source.path.parts[0] == "src")


def written() -> list[tuple[PurePosixPath, str]]:
    return [(path, text) for path, text in texts() if path.parts[0] in READ_FOR_WORDS or str(path) in PAGES]


def format_findings(findings):
    return "\n".join(f"{where}: {what}" for where, what in findings)


def test_no_metaphors_are_used():
    found = [
        each
        for each in find_metaphors(written())
        if each.where.split(":")[0] not in name_exceptions.METAPHORS
    ]
    assert not found, format_findings(found)


def test_functions_are_not_named_by_participles():
    found = [each for each in find_participles(product()) if each.where not in name_exceptions.PARTICIPLES]
    assert not found, format_findings(found)


def test_public_class_names_are_unique():
    found = [
        each
        for each in find_repeated_classes(product())
        if each.where not in name_exceptions.REPEATED_CLASSES
    ]
    assert not found, format_findings(found)


def test_exceptions_end_in_error():
    found = list(find_exceptions_without_suffix(product()))
    assert not found, format_findings(found)


def test_packages_are_small():
    found = list(find_large_packages(product()))
    assert not found, format_findings(found)


def test_every_name_exception_is_still_needed():
    assert name_exceptions.PARTICIPLES.keys() <= {each.where for each in find_participles(product())}
    assert name_exceptions.REPEATED_CLASSES.keys() <= {
        each.where for each in find_repeated_classes(product())
    }
    assert name_exceptions.METAPHORS.keys() <= {
        each.where.split(":")[0] for each in find_metaphors(written())
    }


def source(path: str, text: str) -> Source:
    return Source(PurePosixPath("src/dray") / path, text)


# The words are put together here, so that this file does not contain them.
@pytest.mark.parametrize(
    "text", ["the ho" + "use", "def open_do" + "or(): ...", "class Ta" + "leBook: ...", "LI" + "VES = 9"]
)
def test_a_metaphor_is_found(text):
    assert list(find_metaphors([(PurePosixPath("docs/a.md"), text)]))


@pytest.mark.parametrize(
    "text", ["the store", "a warehouse", "outdoor", "heartbeat", "forward", "lifetime", "insight"]
)
def test_a_word_that_only_contains_a_metaphor_is_accepted(text):
    assert not list(find_metaphors([(PurePosixPath("docs/a.md"), text)]))


@pytest.mark.parametrize("name", ["told", "_judged", "settled_claims", "running", "_kept_by", "held"])
def test_a_participle_is_found(name):
    assert is_participle(name)
    assert list(find_participles([source("a.py", f"def {name}(): ...")]))


@pytest.mark.parametrize(
    "name", ["feed", "need_retry", "ping", "read", "run", "embed", "put", "build_string"]
)
def test_a_verb_is_accepted(name):
    assert not is_participle(name)


def test_a_property_may_be_a_participle():
    assert not list(
        find_participles([source("a.py", "class C:\n    @property\n    def allocated(self): ...")])
    )


def test_two_classes_of_one_name_are_found():
    pair = [source("a.py", "class Entry: ..."), source("b.py", "class Entry: ...")]
    assert [each.where for each in find_repeated_classes(pair)] == ["Entry"]
    assert not list(
        find_repeated_classes([source("a.py", "class _Entry: ..."), source("b.py", "class _Entry: ...")])
    )


def test_an_exception_without_suffix_is_found():
    texts_ = ["class Broken(ValueError): ...", "class Worse(Broken): ...", "class FineError(Broken): ..."]
    found = find_exceptions_without_suffix(source("a.py", text) for text in texts_)
    assert sorted(each.where for each in found) == ["src/dray/a.py:Broken", "src/dray/a.py:Worse"]


def test_a_large_package_is_found():
    modules = [source(f"api/m{number}.py", "") for number in range(17)]
    assert [each.where for each in find_large_packages(modules)] == ["src/dray/api"]
    assert not list(find_large_packages(modules[:16]))
