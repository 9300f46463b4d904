"""Guides that need kubectl are followed, line by line."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.outside import ROOT
from tests.unit.docs.pages import play

GUIDES = [
    "docs/guides/run-a-server.md",
    "docs/guides/up.md",
    "docs/guides/scheduler.md",
    "docs/guides/nodes.md",
]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_what_happens(guide, tmp_path, kubectl_program):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    try:
        wrong = play((ROOT / guide).read_text(), tmp_path, "console kubectl")
    finally:
        for file in tmp_path.glob("*.pid"):  # a guide that goes wrong does not come to its end
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
    assert not wrong, f"{guide}\n" + "\n".join(map(str, wrong))
