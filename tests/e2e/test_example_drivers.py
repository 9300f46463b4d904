"""The pages of the example drivers are followed: a cluster, a node, a driver, a pod that says what it has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract.kitted import short_folder
from tests.e2e.patience import SOON
from tests.outside import ROOT
from tests.unit.docs.pages import play

DRIVERS = ROOT / "examples" / "drivers"
USE_CASES = {
    "first": (),
    "gpu": (),
    "nic": ("K5075-018", "K5075-019", "K5075-020"),
    "cpu": (),
    "fpga": ("K3063-008", "K3063-009", "K3063-013", "K3063-149"),
    "env": ("K3063-154",),
}
"""Each driver, with the requirements of the specification that its page covers."""


def test_every_driver_has_a_page_that_is_followed():
    assert {path.parent.name for path in DRIVERS.glob("*/README.md")} == set(USE_CASES)
    assert {path.parent.name for path in DRIVERS.glob("*/driver.py")} == set(USE_CASES)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.req(*ids)] if ids else []) for name, ids in USE_CASES.items()],
)
def test_a_driver_does_what_its_page_shows(name, kubectl_program):
    page = (DRIVERS / name / "README.md").read_text()
    with short_folder() as folder:
        (folder / "examples").symlink_to(ROOT / "examples")
        try:
            wrong = play(page, folder, "console kubectl")
        finally:
            said = _stopped(folder)
    assert not wrong, "\n".join(map(str, wrong)) + said


def _stopped(folder: Path) -> str:
    """End what a page that goes wrong leaves running; what its processes said."""
    script = str(DRIVERS / "try.sh")
    subprocess.run(["/bin/sh", script, "stop"], cwd=folder, timeout=SOON, check=False)
    logs = sorted(folder.glob("dray-try/*.log"))
    return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in logs)


def test_pages_have_one_shape():
    for name in USE_CASES:
        page = (DRIVERS / name / "README.md").read_text()
        headings = [line for line in page.splitlines() if line.startswith("#")]
        assert len(headings) == 3, name
        assert headings[1:] == ["## Picture", "## Run"], name
        assert "```console kubectl" in page, name
