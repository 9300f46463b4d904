"""The rules of the house hold in the repository, and each rule catches the sinner it was written for."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

import pytest

from tests.meta.allowances import ALLOWED
from tests.meta.rules import RULES, Complaint
from tests.meta.tree import Source, sources


@cache
def repository() -> tuple[Source, ...]:
    """Every Python file, read and parsed once for all rules."""
    return tuple(sources())


@cache
def complaints(rule: str) -> list[Complaint]:
    check, holds_in = RULES[rule]
    return [found for source in repository() if holds_in(source.path) for found in check(source)]


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps(rule):
    broken = [f"{where}: {what}" for where, what in complaints(rule) if (rule, where) not in ALLOWED]
    assert not broken, f"house rule `{rule}`:\n" + "\n".join(broken)


def test_every_excuse_is_still_needed():
    needed = {(rule, found.where) for rule in RULES for found in complaints(rule)}
    assert not ALLOWED.keys() - needed


SINNERS = {
    "file-size": ("values/long.py", "x = 1\n" * 401),
    "function-size": ("values/long.py", "def f():\n" + "    x = 1\n" * 40),
    "parameter-count": ("values/wide.py", "def f(a, b, c, d, /, *, e, f, g): ..."),
    "empty-words": ("values/a.py", "class DeviceManager: ..."),
    "docstring": ("values/a.py", "x = 1"),
    "charter": ("values/__init__.py", '"""Values. Pure."""'),
    "pure-imports": ("values/a.py", "def f():\n    from os import path"),
    "pure-calls": ("values/a.py", "from datetime import datetime\nnow = datetime.now()"),
}

SAINTS = {
    "file-size": ("values/long.py", "x = 1\n" * 400),
    "function-size": ("values/long.py", 'def f():\n    """One.\n\n    Two.\n    """\n' + "    x = 1\n" * 39),
    "parameter-count": ("values/wide.py", "class C:\n    def f(self, a, b, c, /, *, d, e, f, **rest): ..."),
    "empty-words": ("values/metadata.py", "class ObjectMetadata: ..."),
    "docstring": ("values/a.py", '"""What lives here."""'),
    "charter": ("values/__init__.py", '"""What lives here. What may not. Who may import it."""'),
    "pure-imports": ("values/a.py", "import datetime\nimport re\nfrom dray.errors import DrayError"),
    "pure-calls": ("values/a.py", "def f(clock, text):\n    return clock.now(), text.open()"),
}


def test_every_rule_has_a_sinner_and_a_saint():
    assert SINNERS.keys() == SAINTS.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_a_sinner_is_caught(rule):
    assert list(_judged(rule, *SINNERS[rule]))


@pytest.mark.parametrize("rule", RULES)
def test_a_saint_is_left_in_peace(rule):
    assert not list(_judged(rule, *SAINTS[rule]))


@pytest.mark.parametrize("path", ["values/utils.py", "api/helpers/a.py", "misc.py", "api/device_info.py"])
def test_empty_words_in_module_names_are_caught(path):
    assert list(_judged("empty-words", path, ""))


@pytest.mark.parametrize("call", ["open('x')", "print('x')", "input()", "date.today()"])
def test_calls_that_reach_the_world_are_caught(call):
    assert list(_judged("pure-calls", "values/a.py", call))


@pytest.mark.parametrize("path", ["cli/main.py", "clock.py", "__init__.py"])
def test_the_world_is_open_above_the_purity_line(path):
    assert not list(_judged("pure-imports", path, "import os"))


def _judged(rule, path, text):
    check, holds_in = RULES[rule]
    source = Source(PurePosixPath("src/dray") / path, text)
    return check(source) if holds_in(source.path) else ()
