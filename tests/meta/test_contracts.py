"""The import contracts hold in this repository, and break where they should.

The second half builds a small project of empty packages under the contracts of this repository and adds one
wrong import to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.tree import contracts, packages, pure_packages
from tests.outside import ROOT

CONFIG = ROOT / "pyproject.toml"
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
MODULES = frozenset({"__main__", "clock", "gates", "errors", "share_ids"})
"""The entries of the tiers that are single modules; the others are packages."""


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
def project(tmp_path: Path) -> Path:
    """A project with every package of the tiers, all empty."""
    package = tmp_path / "src" / "dray"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in packages():
        if name in MODULES:
            (package / f"{name}.py").touch()
        else:
            (package / name).mkdir()
            (package / name / "__init__.py").touch()
    return tmp_path


def write_module(project: Path, path: str, text: str) -> None:
    """Write a module of the small project, with the packages it is in."""
    module = project / "src" / "dray" / path
    module.parent.mkdir(parents=True, exist_ok=True)
    for folder in (module.parent, *module.parent.parents):
        if folder == project / "src":
            break
        (folder / "__init__.py").touch()
    module.write_text(text + "\n")


def test_the_repository_keeps_its_contracts():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_project_of_empty_packages_keeps_them_too(project):
    result = lint(project)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_pure_contract_covers_the_pure_tiers():
    covered = [name.split(".")[1] for name in contracts()["pure"]["source_modules"]]
    assert covered == pure_packages()


BREAKING = [
    pytest.param("unlisted/__init__.py", "", "tiers", id="a package without a tier"),
    pytest.param("values/quantity.py", "import dray.api", "tiers", id="an import upwards"),
    pytest.param("server/http.py", "import dray.scheduler", "tiers", id="a service imports a service"),
    pytest.param("values/quantity.py", "import time", "pure", id="a pure package reads the clock"),
    pytest.param("api/codec.py", "from os import path", "pure", id="a pure package imports os"),
    pytest.param("allocator/search/backtracking.py", "import grpc", "pure", id="a pure package imports gRPC"),
    pytest.param("api/validation.py", "import dray.gates", "gates", id="a gate read in validation"),
    pytest.param(
        "allocator/search/backtracking.py", "import dray.gates", "gates", id="a gate read in the search"
    ),
]


@pytest.mark.parametrize(("path", "text", "contract"), BREAKING)
def test_a_wrong_import_breaks_a_contract(project, path, text, contract):
    write_module(project, path, text)
    result = lint(project)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contracts()[contract]['name']} BROKEN" in result.stdout


def test_a_service_that_imports_the_vectors_breaks_the_contract(project):
    write_module(project, "simulation/vectors/vector.py", "")
    write_module(project, "cluster/live.py", "import dray.simulation.vectors.vector")
    result = lint(project)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contracts()['development']['name']} BROKEN" in result.stdout


def test_a_cycle_breaks_the_contract(project):
    (project / "src/dray/api/one.py").write_text("import dray.api.two\n")
    (project / "src/dray/api/two.py").write_text("import dray.api.one\n")
    result = lint(project)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contracts()['cycles']['name']} BROKEN" in result.stdout


GATE_READERS = [
    "api/strategies/gated_fields.py",
    "api/devices/device_cel.py",
    "allocator/feature_gates.py",
    "lint/check.py",
    "cluster/wire.py",
    "cli/main.py",
]


def test_the_listed_modules_may_read_gates(project):
    for path in GATE_READERS:
        write_module(project, path, "import dray.gates")
    result = lint(project)
    assert result.returncode == 0, result.stdout + result.stderr
