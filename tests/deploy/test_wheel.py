"""The wheel of this tree in an empty environment: its commands work, and nothing of the clone is needed.

`make wheel.smoke` does the same with dependencies from a package index, in each Python that it finds.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.outside import ROOT
from tools.release import ReleaseError, run, try_wheel
from tools.wheel_smoke import VERSIONS, ask_version, build_wheel, read_version


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, which finds its dependencies where this Python has them."""
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        environment / "bin" / "python",
    )
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    # Files of that directory are found, and its own `.pth` files, which lead to the clone, are not read.
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def test_the_commands_of_the_wheel_work(environment: Path, tmp_path: Path):
    tried = try_wheel(read_version(), environment, ROOT / "examples", tmp_path)
    assert {"version", "plugin", "allocate", "explain", "lint", "gates"} <= set(tried.split(", "))


def test_another_output_is_noticed(environment: Path, tmp_path: Path):
    """The trial itself: with another version it fails, and says what it saw."""
    with pytest.raises(ReleaseError, match=r"version: expected `dray 99\.9` in\ndray "):
        try_wheel("99.9", environment, ROOT / "examples", tmp_path)


def test_the_clone_is_not_needed(environment: Path, tmp_path: Path):
    script = "import dray, dray_examples; print(*dray.__path__, *dray_examples.__path__)"
    shown = run(environment / "bin" / "python", "-c", script, cwd=tmp_path)
    assert str(ROOT) not in shown
    assert shown.count(str(environment)) == 2


def test_the_wheel_has_everything_of_the_packages(wheel: Path):
    """Data files, too: descriptors, templates of the skeleton, the marker of type hints."""
    tracked = subprocess.run(
        ["git", "ls-files", "src/dray"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("no git, or no clone: what belongs into the wheel is not known")
    expected = {path.removeprefix("src/") for path in tracked.stdout.splitlines() if (ROOT / path).is_file()}
    assert expected
    assert expected <= set(zipfile.ZipFile(wheel).namelist())


def test_the_classifiers_name_the_versions_that_are_tried():
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert tuple(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)) == VERSIONS


def test_an_interpreter_is_found_by_what_it_says():
    """Names on PATH may lead to nothing."""
    assert ask_version(sys.executable) == platform.python_version()
    assert ask_version("/nonexistent/python3") is None
    assert ask_version("false") is None
