"""The floors of test coverage are those of the specification, and a package below its floor is reported."""

from __future__ import annotations

import pytest

from tests.outside import ROOT
from tools.coverage_report import AREAS, PACKAGE_FLOORS, compute_rows, render_rows

SPECIFIED = {
    "cel": 85.2,
    "allocator": 93.1,
    "validation": 96.8,
    "claim controller": 74.6,
    "claim registry": 87.1,
    "slice registry": 77.7,
    "node agent": 83.5,
    "scheduler plugin": 80.0,
}
SOURCE = ROOT / "src" / "dray"


@pytest.mark.req("K4816-080", "K5075-139", "K5773-028")
def test_the_floors_are_those_of_the_specification():
    assert {name: area.floor for name, area in AREAS.items()} == SPECIFIED
    assert {each for area in AREAS.values() for each in area.requirements} == {
        "K4816-080",
        "K5075-139",
        "K5773-028",
    }


@pytest.mark.parametrize("path", sorted({path for area in AREAS.values() for path in area.paths}))
def test_an_area_is_a_file_or_package_that_exists(path):
    assert (SOURCE / path).exists()


@pytest.mark.req("K3063-153")
def test_every_package_has_a_floor():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(PACKAGE_FLOORS)


def measure(covered: int) -> dict:
    summary = {"covered_lines": covered, "covered_branches": 0, "num_statements": 100, "num_branches": 0}
    paths = [*PACKAGE_FLOORS, *(path for area in AREAS.values() for path in area.paths)]
    names = {path if path.endswith(".py") else f"{path}/a.py" for path in paths}
    return {f"src/dray/{name}": {"summary": summary} for name in names}


def test_a_package_below_its_floor_is_reported():
    assert not any(row.is_below for row in compute_rows(measure(100)))
    rows = compute_rows(measure(70))
    assert all(row.is_below for row in rows)
    assert render_rows(rows).count("BELOW") == len(PACKAGE_FLOORS) + len(AREAS)


def test_the_nightly_job_holds_the_floors():
    assert "exec make test coverage " in (ROOT / ".ci" / "nightly").read_text()


def test_make_coverage_prints_the_table():
    makefile = (ROOT / "Makefile").read_text()
    assert "-m tools.coverage_report" in makefile.partition("\ncoverage:")[2].partition("\n\n")[0]
