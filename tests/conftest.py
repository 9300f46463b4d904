"""What all tests share: options, hypothesis profiles, and the count of requirements they name."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.meta import requirements as reqs
from tests.outside import NO_CORPUS, NO_REQUIREMENTS, ROOT, corpus_dir, requirements_file

# `reproducible` gives the same examples on every machine, so that a failure is one everywhere. `thorough`
# tries more examples, and others each time; its seed is printed in the header.
settings.register_profile(
    "reproducible", derandomize=True, max_examples=30, deadline=None, database=None, print_blob=True
)
settings.register_profile("thorough", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("DRAY_HYPOTHESIS_PROFILE", "reproducible"))

LONG = ("tests/e2e/", "tests/faults/")
"""Where tests run processes of their own."""

NAMED = pytest.StashKey[frozenset[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are processors: tests with processes of their own wait more than they work."""
    return 2 + (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    # Write `--corpus=DIR` when no test path is given: pytest looks for its configuration before it knows
    # these options, and would take a separate DIR for the place to start from.
    group = parser.getgroup("dray")
    group.addoption(
        "--corpus", metavar="DIR", help="reference corpus (default: ../shared/corpus if it is there)"
    )
    group.addoption(
        "--requirements", metavar="FILE", help="list of requirements (default: beside the corpus)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a random profile before hypothesis reads its option, so that it can be printed."""
    if not settings().derandomize and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(2**32))


def pytest_report_header(config: pytest.Config) -> list[str]:
    profile = settings.get_current_profile_name()
    seed = config.getoption("--hypothesis-seed")
    chance = "the same examples every time" if seed is None else f"repeat with --hypothesis-seed={seed}"
    corpus = corpus_dir(config)
    return [
        f"hypothesis: profile {profile}, {chance}",
        f"corpus: {os.path.relpath(corpus, ROOT)}" if corpus else f"corpus: {NO_CORPUS}",
    ]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that the workers end at the same time with many short ones."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_collection_finish(session: pytest.Session) -> None:
    markers = (marker for item in session.items for marker in item.iter_markers("req"))
    from_tests = frozenset(reqs.ids_of(marker.args) for marker in markers)
    from_cases = reqs.find_ids_in_cases(ROOT / "tests" / "cases")
    session.config.stash[NAMED] = frozenset[str]().union(*from_tests, from_cases)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass the requirement ids of all tests from a worker process to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        named: frozenset[str] = session.config.stash[NAMED]
        output["named"] = sorted(named)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the requirement ids of any worker: every worker collects all tests."""
    named = getattr(node, "workeroutput", {}).get("named")
    if named is not None:
        node.config.stash[NAMED] = frozenset(named)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    named = config.stash.get(NAMED, frozenset[str]())
    source = requirements_file(config)
    known = reqs.load(source) if source else ()
    lines = reqs.summary(named, known)
    # Level by level only after a run of all tests: for a few selected tests the numbers mean little.
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    terminalreporter.section("requirements")
    for line in lines if whole else lines[:1]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def corpus(pytestconfig: pytest.Config) -> Path:
    """The reference corpus; the test is skipped when there is none."""
    chosen = corpus_dir(pytestconfig)
    if chosen is None:
        pytest.skip(NO_CORPUS)
    return chosen


@pytest.fixture(scope="session")
def requirements(pytestconfig: pytest.Config) -> tuple[reqs.Requirement, ...]:
    """The list of requirements; the test is skipped when there is none."""
    source = requirements_file(pytestconfig)
    if source is None:
        pytest.skip(NO_REQUIREMENTS)
    return reqs.load(source)


@pytest.fixture(scope="session")
def named_requirements(pytestconfig: pytest.Config) -> frozenset[str]:
    """Every requirement id that a collected test or a case names."""
    return pytestconfig.stash[NAMED]
