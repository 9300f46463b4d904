"""The guide for authors of drivers is followed, in a folder whose path is short enough for sockets."""

from __future__ import annotations

import contextlib
import os
import signal

from tests.contract.kitted import short_folder
from tests.e2e.patience import until
from tests.outside import ROOT
from tests.unit.docs.pages import play

GUIDE = ROOT / "docs" / "guides" / "write-a-driver.md"


def test_the_guide_for_drivers_shows_what_happens(kubectl_program):
    with short_folder() as folder:
        try:
            wrong = play(GUIDE.read_text(), folder, "console kubectl")
        finally:
            pids = [int(file.read_text()) for file in folder.glob("*.pid")]
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            until(lambda: not any(map(_is_there, pids)))
            said = [f"--- {log.name}\n{log.read_text()}" for log in sorted(folder.glob("*.log"))]
    assert not wrong, "\n".join([*map(str, wrong), *said])


def _is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
