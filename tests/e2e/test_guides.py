"""Guides that need kubectl are followed, line by line."""

from __future__ import annotations

import tempfile
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
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for the sockets that guides make in it."""
    with tempfile.TemporaryDirectory(prefix="dray-") as path:
        yield Path(path)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_what_happens(guide, folder, kubectl_program):
    (folder / "examples").symlink_to(ROOT / "examples")
    wrong = play((ROOT / guide).read_text(), folder, "console kubectl")
    assert not wrong, f"{guide}\n" + "\n".join(map(str, wrong))
