"""Prints test coverage by package, and compares it with the floors of the project and of the specification.

`make coverage` writes `coverage.json` and runs `python -m tools.coverage_report coverage.json`, which exits
with 1 when a package or an area is below its floor. Covered lines and covered branches count alike.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class CoverageArea(NamedTuple):
    """A part of the tree with a floor from the specification."""

    paths: tuple[str, ...]
    floor: float
    requirements: tuple[str, ...]


AREAS: Mapping[str, CoverageArea] = {
    "cel": CoverageArea(("cel",), 85.2, ("K4816-080",)),
    "allocator": CoverageArea(("allocator",), 93.1, ("K4816-080", "K5075-139", "K5773-028")),
    "validation": CoverageArea(("api/validation",), 96.8, ("K5075-139",)),
    "claim controller": CoverageArea(
        (
            "controllers/resource_claims.py",
            "controllers/claim_actions.py",
            "controllers/claim_creation.py",
            "controllers/claim_responses.py",
            "controllers/claim_writes.py",
            "claims/lifecycle.py",
        ),
        74.6,
        ("K4816-080",),
    ),
    "claim registry": CoverageArea(
        ("server/registry", "api/validation/kinds/claim.py", "api/validation/kinds/claim_status.py"),
        87.1,
        ("K5075-139",),
    ),
    "slice registry": CoverageArea(
        ("server/registry", "api/validation/kinds/slice.py"), 77.7, ("K5075-139",)
    ),
    "node agent": CoverageArea(("node",), 83.5, ("K4816-080", "K5075-139")),
    "scheduler plugin": CoverageArea(
        ("placement/plugins/dynamic_resources.py", "placement/plugins/classic_resources.py"),
        80.0,
        ("K4816-080", "K5773-028"),
    ),
}
"""The areas of the test plans in the specification, with the coverage they ask for in percent."""

PACKAGE_FLOORS: Mapping[str, int] = {
    "allocator": 99,
    "api": 99,
    "cel": 96,
    "claims": 98,
    "cli": 91,
    "client": 98,
    "cluster": 83,
    "controllers": 95,
    "driver": 94,
    "explain": 98,
    "guard": 75,
    "lint": 98,
    "manifests": 98,
    "node": 89,
    "placement": 99,
    "scheduler": 98,
    "server": 97,
    "simulation": 98,
    "store": 93,
    "telemetry": 99,
    "values": 99,
    "wire": 98,
}
"""What was reached once, without the tests that start processes; it does not fall."""


class CoverageRow(NamedTuple):
    """The coverage of a package or an area, and its floor."""

    name: str
    percent: float
    floor: float

    @property
    def is_below(self) -> bool:
        """Whether the floor is missed."""
        return self.percent < self.floor


def compute_rows(files: Mapping[str, Mapping[str, Any]]) -> list[CoverageRow]:
    """Compute the coverage of every package and area from the `files` of a coverage report."""
    packages = [
        CoverageRow(name, _compute_percent(files, (name,)), floor) for name, floor in PACKAGE_FLOORS.items()
    ]
    areas = [
        CoverageRow(f"specification: {name}", _compute_percent(files, area.paths), area.floor)
        for name, area in AREAS.items()
    ]
    return packages + areas


def _compute_percent(files: Mapping[str, Mapping[str, Any]], paths: tuple[str, ...]) -> float:
    covered = total = 0
    for file, measured in files.items():
        path = file.replace("\\", "/").rpartition("src/dray/")[2]
        if any(path == each or path.startswith(f"{each}/") for each in paths):
            summary = measured["summary"]
            covered += summary["covered_lines"] + summary["covered_branches"]
            total += summary["num_statements"] + summary["num_branches"]
    return 100.0 * covered / total if total else 0.0


def render_rows(rows: list[CoverageRow]) -> str:
    """Render a table; rows below their floor say so."""
    width = max(len(row.name) for row in rows)
    return "\n".join(
        f"{row.name:<{width}}  {row.percent:5.1f} %  floor {row.floor:g} %{'  BELOW' if row.is_below else ''}"
        for row in rows
    )


def main(arguments: list[str]) -> int:
    """Print the table of a report; 1 when a floor is missed."""
    rows = compute_rows(json.loads(Path(arguments[0]).read_text("utf-8"))["files"])
    print(render_rows(rows))
    return int(any(row.is_below for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
