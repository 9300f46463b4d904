"""The source rules hold in the repository, and each rule finds the bad example it was written for."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.meta.allowances import ALLOWED
from tests.meta.rules import RULES, Finding
from tests.meta.tree import Source, sources


@cache
def repository() -> tuple[Source, ...]:
    """Every Python file, read and parsed once for all rules."""
    return tuple(sources())


@cache
def findings(rule: str) -> list[Finding]:
    check, applies_to = RULES[rule]
    return [found for source in repository() if applies_to(source.path) for found in check(source)]


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_follows(rule):
    broken = [f"{where}: {what}" for where, what in findings(rule) if (rule, where) not in ALLOWED]
    assert not broken, f"rule `{rule}`:\n" + "\n".join(broken)


def test_every_allowance_is_still_needed():
    needed = {(rule, found.where) for rule in RULES for found in findings(rule)}
    assert not ALLOWED.keys() - needed


BAD_EXAMPLES = {
    "file-size": ("values/long.py", "x = 1\n" * 401),
    "function-size": ("values/long.py", "def f():\n" + "    x = 1\n" * 40),
    "parameter-count": ("values/wide.py", "def f(a, b, c, d, /, *, e, f, g): ..."),
    "empty-words": ("values/a.py", "class DeviceManager: ..."),
    "docstring": ("values/a.py", "x = 1"),
    "package-docstring": ("values/__init__.py", '"""Values. Pure."""'),
    "pure-imports": ("values/a.py", "def f():\n    from os import path"),
    "pure-calls": ("values/a.py", "from datetime import datetime\nnow = datetime.now()"),
}

GOOD_EXAMPLES = {
    "file-size": ("values/long.py", "x = 1\n" * 400),
    "function-size": ("values/long.py", 'def f():\n    """One.\n\n    Two.\n    """\n' + "    x = 1\n" * 39),
    "parameter-count": ("values/wide.py", "class C:\n    def f(self, a, b, c, /, *, d, e, f, **rest): ..."),
    "empty-words": ("values/metadata.py", "class ObjectMetadata: ..."),
    "docstring": ("values/a.py", '"""Values."""'),
    "package-docstring": (
        "values/__init__.py",
        '"""Contains values. Contains no clock. Everyone may import it."""',
    ),
    "pure-imports": ("values/a.py", "import datetime\nimport re\nfrom dray.errors import DrayError"),
    "pure-calls": ("values/a.py", "def f(clock, text):\n    return clock.now(), text.open()"),
}


def test_every_rule_has_a_bad_and_a_good_example():
    assert BAD_EXAMPLES.keys() == GOOD_EXAMPLES.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_a_bad_example_is_found(rule):
    assert list(_check(rule, *BAD_EXAMPLES[rule]))


@pytest.mark.parametrize("rule", RULES)
def test_a_good_example_is_accepted(rule):
    assert not list(_check(rule, *GOOD_EXAMPLES[rule]))


@pytest.mark.parametrize("path", ["values/utils.py", "api/helpers/a.py", "misc.py", "api/device_info.py"])
def test_empty_words_in_module_names_are_found(path):
    assert list(_check("empty-words", path, ""))


@pytest.mark.parametrize("call", ["open('x')", "print('x')", "input()", "date.today()"])
def test_calls_with_side_effects_are_found(call):
    assert list(_check("pure-calls", "values/a.py", call))


@pytest.mark.parametrize("path", ["cli/main.py", "clock.py", "__init__.py"])
def test_packages_above_the_pure_tiers_may_import_os(path):
    assert not list(_check("pure-imports", path, "import os"))


def _check(rule, path, text):
    check, applies_to = RULES[rule]
    source = Source(PurePosixPath("src/dray") / path, text)
    return check(source) if applies_to(source.path) else ()
