"""The import contracts hold here, and break where they should.

The second half builds a small house of empty rooms, under the contracts of this repository, and puts one
wrong import into it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.tree import contracts, pure_rooms, rooms
from tests.outside import ROOT

CONFIG = ROOT / "pyproject.toml"
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
MODULES = frozenset({"__main__", "clock", "gates", "errors"})
"""The rooms that are one module; the others are packages."""


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            LINT_IMPORTS,
            "--no-logo",
            "--no-cache",
            "--config",
            str(CONFIG),
        ],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A project with every room of the tiers, all empty."""
    package = tmp_path / "src" / "dray"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for room in rooms():
        if room in MODULES:
            (package / f"{room}.py").touch()
        else:
            (package / room).mkdir()
            (package / room / "__init__.py").touch()
    return tmp_path


def test_the_repository_keeps_its_contracts():
    verdict = lint(ROOT)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_the_finished_house_keeps_them_too(house):
    verdict = lint(house)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_the_pure_contract_covers_the_pure_tiers():
    covered = [name.split(".")[1] for name in contracts()["pure"]["source_modules"]]
    assert covered == pure_rooms()


BREAKING = [
    pytest.param("attic/__init__.py", "", "tiers", id="a room without a place"),
    pytest.param("values/quantity.py", "import dray.api", "tiers", id="an import upwards"),
    pytest.param("server/http.py", "import dray.scheduler", "tiers", id="a service imports a service"),
    pytest.param("values/quantity.py", "import time", "pure", id="a pure room reads the clock"),
    pytest.param("api/codec.py", "from os import path", "pure", id="a pure room knows the machine"),
    pytest.param(
        "allocator/search/backtracking.py", "import grpc", "pure", id="a pure room knows the network"
    ),
    pytest.param("api/validation.py", "import dray.gates", "gates", id="a gate read inside"),
    pytest.param(
        "allocator/search/backtracking.py", "import dray.gates", "gates", id="a gate read in the search"
    ),
]


@pytest.mark.parametrize(("path", "text", "contract"), BREAKING)
def test_a_wrong_house_breaks(house, path, text, contract):
    place = house / "src" / "dray" / path
    place.parent.mkdir(exist_ok=True)
    place.write_text(text + "\n")
    verdict = lint(house)
    assert verdict.returncode == 1, verdict.stdout + verdict.stderr
    assert f"{contracts()[contract]['name']} BROKEN" in verdict.stdout


def test_a_cycle_breaks(house):
    (house / "src/dray/api/one.py").write_text("import dray.api.two\n")
    (house / "src/dray/api/two.py").write_text("import dray.api.one\n")
    verdict = lint(house)
    assert verdict.returncode == 1, verdict.stdout + verdict.stderr
    assert f"{contracts()['cycles']['name']} BROKEN" in verdict.stdout


DOORS = [
    "api/strategies/gated_fields.py",
    "api/devices/device_cel.py",
    "allocator/feature_gates.py",
    "lint/check.py",
    "cluster/wire.py",
    "cli/main.py",
]


def test_the_doors_may_read_gates(house):
    for door in DOORS:
        (house / "src" / "dray" / door).write_text("import dray.gates\n")
    verdict = lint(house)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
