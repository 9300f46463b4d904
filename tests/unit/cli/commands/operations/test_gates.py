"""`dray gates`."""

from __future__ import annotations

import json

from dray.cli.commands.operations.gates import render_stacked
from dray.gates import GATES, GateSet
from tests.unit.cli.conftest import Typed


def test_every_gate_is_a_line(typed: Typed) -> None:
    ended = typed("gates")
    assert ended.code == 0
    titles, *rows = ended.out.splitlines()
    assert titles.split() == ["name", "stage", "default", "now", "requires", "about"]
    assert [row.split()[0] for row in rows] == list(GATES)
    assert all(row.endswith(gate.about) for row, gate in zip(rows, GATES.values(), strict=True))


def test_a_narrow_screen_breaks_no_name() -> None:
    lines = "\n".join(render_stacked(GateSet.parse("DRAAdminAccess=false"), 60)).splitlines()
    assert "DRAAdminAccess (Beta): off, on by default" in lines
    assert "DRAPrioritizedList (Beta): on" in lines
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(lines).split())
    assert all(gate.about in words for gate in GATES.values())
    assert "requires DynamicResourceAllocation, DRAResourceClaimDeviceStatus" in words


def test_gates_for_machines_show_what_was_switched(typed: Typed) -> None:
    ended = typed("gates", "-o", "json", "--feature-gates", "DRAAdminAccess=false")
    by_name = {row["name"]: row for row in json.loads(ended.out)["gates"]}
    assert by_name.keys() == GATES.keys()
    assert by_name["DRAAdminAccess"] == {
        "name": "DRAAdminAccess",
        "stage": "Beta",
        "default": True,
        "now": False,
        "requires": ["DynamicResourceAllocation"],
        "about": GATES["DRAAdminAccess"].about,
    }
