"""Prints after a run how the corpus was met."""

from __future__ import annotations

import pytest

SUMMARY = pytest.StashKey[list[str]]()
"""Lines that runners add and the end of the run prints."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(SUMMARY, [])
    if lines:
        terminalreporter.section("corpus")
    for line in lines:
        terminalreporter.write_line(line)
