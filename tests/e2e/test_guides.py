"""Guides that need kubectl are followed, line by line."""

from __future__ import annotations

import pytest

from tests.outside import ROOT
from tests.unit.docs.pages import play

GUIDES = ["docs/guides/run-a-server.md"]


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_shows_what_happens(guide, tmp_path, kubectl_program):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    wrong = play((ROOT / guide).read_text(), tmp_path, "console kubectl")
    assert not wrong, f"{guide}\n" + "\n".join(map(str, wrong))
