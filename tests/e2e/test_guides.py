"""Guides that need kubectl are followed, line by line."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outside import ROOT
from tests.unit.docs.pages import play

GUIDES = [
    pytest.param("docs/start/first-device.md", marks=pytest.mark.req("K3063-016")),  # easy to ask for devices
    "docs/guides/workloads.md",
    "docs/guides/platform.md",
    "docs/guides/run-a-server.md",
    "docs/guides/up.md",
    "docs/guides/scheduler.md",
    "docs/guides/nodes.md",
]


@pytest.fixture
def desk() -> Iterator[Path]:
    """A folder whose path is short enough for the sockets that guides make in it."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        yield Path(folder)


def _end(process: int) -> None:
    """Let a process end what it started, and end it by force when it does not."""
    os.kill(process, signal.SIGTERM)
    for _ in range(100):
        os.kill(process, 0)
        time.sleep(0.1)
    os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_what_happens(guide, desk, kubectl_program):
    (desk / "examples").symlink_to(ROOT / "examples")
    try:
        wrong = play((ROOT / guide).read_text(), desk, "console kubectl")
    finally:
        for file in desk.glob("*.pid"):  # a guide that goes wrong does not come to its end
            with contextlib.suppress(ProcessLookupError, ValueError):
                _end(int(file.read_text()))
    assert not wrong, f"{guide}\n" + "\n".join(map(str, wrong))
