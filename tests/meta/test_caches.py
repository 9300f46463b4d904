"""Every cache has a bound or a short-lived owner; docs/internals/memory.md lists all bounds."""

from __future__ import annotations

import importlib
import pkgutil
from functools import _lru_cache_wrapper, cache
from pathlib import PurePosixPath

import pytest

import dray
from dray.values.cache_bounds import CACHE_BOUNDS, CacheBound
from tests.meta.growth import growing_attributes, growing_modules, unbounded_caches
from tests.meta.lifetimes import LIFETIMES
from tests.meta.tree import Source, sources
from tests.outside import ROOT

PAGE = ROOT / "docs" / "internals" / "memory.md"
RULES = (unbounded_caches, growing_modules, growing_attributes)
MOST = 100_000
"""A cache with more entries than this would be a copy of the cluster."""


@cache
def findings():
    return [
        found
        for source in sources()
        if source.path.parts[0] == "src"
        for rule in RULES
        for found in rule(source)
    ]


def reasons_for(where: str) -> set[str]:
    package = "/".join(where.split("/")[:3])
    return {where, where.rpartition(".")[0], package} & LIFETIMES.keys()


def test_every_growing_container_has_a_bound_or_a_short_lived_owner():
    unbounded = [f"{where}: {what}" for where, what in findings() if not reasons_for(where)]
    assert not unbounded, "\n".join(unbounded)


def test_every_lifetime_is_still_needed():
    needed = {place for found in findings() for place in reasons_for(found.where)}
    assert not LIFETIMES.keys() - needed


def owner(begin: str, *then: str) -> str:
    """A class that starts with a container, and the bodies of its methods."""
    methods = "".join(f"    def f{number}(self, x):\n        {line}\n" for number, line in enumerate(then))
    return f"class C:\n    def __init__(self):\n        {begin}\n{methods}"


GROWING = {
    "a cached function": "from functools import cache\n@cache\ndef f(x): return x",
    "a cache by its full name": "import functools\n@functools.cache\ndef f(x): return x",
    "lru_cache of None": "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(x): return x",
    "lru_cache as a call": "from functools import lru_cache\nf = lru_cache(None)(print)",
    "a dict of the module": "known = {}\ndef f(x):\n    known[x] = 1",
    "a set of the module": "known: set[int] = set()\ndef f(x):\n    known.add(x)",
    "a dict": owner("self.a = {}", "self.a[x] = 1"),
    "one of several": owner("self.a, self.b = [], 1", "self.a.append(x)"),
    "a field": "class C:\n    a: dict = field(default_factory=dict)\n    def f(self, x): self.a[x] = 1",
    "a union": owner("self.a = set()", "self.a |= x"),
}

BOUNDED = {
    "one result": "from functools import cache\n@cache\ndef f(): return 1",
    "a number": "from functools import lru_cache\n@lru_cache(maxsize=8)\ndef f(x): return x",
    "the number of Python": "from functools import lru_cache\n@lru_cache\ndef f(x): return x",
    "a table": "known = {1: 2}\ndef f(x):\n    return known[x]",
    "a bound": owner("self.a = {}", "self.a[x] = BOUND.put(self.a, x, 1)"),
    "a removal": owner("self.a = {}", "self.a[x] = 1", "del self.a[x]"),
    "a callback that removes": owner("self.a = set()", "self.a.add(x)", "x.then(self.a.discard)"),
    "a difference": owner("self.a = set()", "self.a |= x", "self.a -= x"),
    "a new beginning": owner("self.a = []", "self.a.append(x)", "self.a = []"),
    "a length": owner("self.a = deque(maxlen=3)", "self.a.append(x)"),
    "filled once": owner("self.a = {}", "return self.a[x]"),
}


@pytest.mark.parametrize("what", GROWING)
def test_a_growing_container_is_found(what):
    assert _found(GROWING[what])


@pytest.mark.parametrize("what", BOUNDED)
def test_a_bounded_container_is_accepted(what):
    assert not _found(BOUNDED[what])


def _found(text):
    source = Source(PurePosixPath("src/dray/values/a.py"), text)
    return [finding for rule in RULES for finding in rule(source)]


# --- the list ---


@cache
def bounds() -> dict[str, CacheBound]:
    """Every bound, after everything was imported."""
    modules()
    return {name: bound for name, bound in CACHE_BOUNDS.items() if bound.owner != "a test"}


@cache
def modules():
    found = []
    for module in pkgutil.walk_packages(dray.__path__, "dray."):
        if not module.name.endswith("__main__"):
            found.append(importlib.import_module(module.name))
    return found


def test_every_bound_is_on_the_page_and_no_other():
    table = PAGE.read_text("utf-8").partition("| --- |")[2].partition("\n\n")[0]
    listed = {row.split("|")[1].strip(): row for row in table.splitlines()[1:]}
    for name, bound in bounds().items():
        assert name in listed, (
            f"`{name}` is missing in {PAGE.name}: | {name} | {bound.max_entries:,} | {bound.owner} |"
        )
        assert [part.strip() for part in listed[name].split("|")[2:4]] == [
            f"{bound.max_entries:,}",
            bound.owner,
        ]
    assert listed.keys() == bounds().keys()


def test_no_bound_is_as_large_as_a_cluster():
    assert all(bound.max_entries <= MOST for bound in bounds().values())


def test_every_cache_of_a_function_has_a_bound():
    found = {
        f"{value.__module__}.{value.__qualname__}": value.cache_parameters()["maxsize"]
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, _lru_cache_wrapper) and value.__module__.startswith("dray.")
    }
    assert len(found) > 20
    assert all(most <= MOST for most in found.values())
