"""The guide for authors of drivers is followed, in a folder whose path is short enough for sockets."""

from __future__ import annotations

from tests.contract.kitted import short_folder
from tests.outside import ROOT
from tests.unit.docs.pages import play

GUIDE = ROOT / "docs" / "guides" / "write-a-driver.md"


def test_the_guide_for_drivers_shows_what_happens(kubectl_program):
    with short_folder() as folder:
        wrong = play(GUIDE.read_text(), folder, "console kubectl")
        logs = [f"--- {log.name}\n{log.read_text()}" for log in sorted(folder.glob("*.log"))]
    assert not wrong, "\n".join([*map(str, wrong), *logs])
