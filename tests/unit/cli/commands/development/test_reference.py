"""`dray reference`: pages with the contents of the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.api.kinds import KINDS, get_kind
from dray.api.limits import LIMITS
from dray.api.strategies.open_defaults import OPEN_DEFAULTS
from dray.cli.app import COMMANDS
from dray.cli.commands.development import reference_pages
from dray.controllers import metrics as controllers
from dray.gates import GATES
from dray.lint import RULES
from dray.node import agent_metrics as node
from dray.scheduler import metrics as scheduler
from dray.server.http.limits import LIMITS as SERVER_LIMITS
from dray.server.observability import metrics as server
from dray.simulation.vectors.reference.departures import DECISIONS
from tests.unit.cli.conftest import Typed

TABLES = (server.MEASURES, scheduler.METRIC_DEFINITIONS, controllers.METRIC_DEFINITIONS, node.MEASURES)


def test_pages_are_written_and_checked(typed: Typed, desk: Path) -> None:
    assert typed("reference", "--check", "out").code == 1
    ended = typed("reference", "out")
    assert (ended.code, ended.out) == (0, "")
    assert sorted(path.name for path in (desk / "out").iterdir()) == sorted(
        reference_pages.render_all_pages()
    )
    assert typed("reference", "--check", "out").code == 0
    (desk / "out" / "gates.md").write_text("old")
    ended = typed("reference", "--check", "out")
    assert (ended.code, ended.out) == (1, "out/gates.md is not up to date\n")


def test_a_folder_that_cannot_be_is_broken_input(typed: Typed, desk: Path) -> None:
    (desk / "file").write_text("")
    ended = typed("reference", "file/out")
    assert ended.code == 2
    assert ended.err.startswith("dray: cannot write to `file/out`")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("gates.md", [f"| `{name}` |" for name in GATES]),
        ("limits.md", [f"| {limit.subject} | {limit.maximum:,} |" for limit in LIMITS]),
        ("server-limits.md", [f"| `{limit.flag_name}` |" for limit in SERVER_LIMITS]),
        ("metrics.md", [f"| `{name}` |" for rows in TABLES for name in rows]),
        ("lint-rules.md", [f"## {name}\n" for name in RULES]),
        (
            "kinds.md",
            [f"## {kind.name} ({kind.internal_api_version})\n" for kind in KINDS if not kind.is_opaque],
        ),
        ("defaults.md", [f"## {get_kind(*kind).qualified_name}\n" for kind in OPEN_DEFAULTS]),
        ("commands.md", [f"## dray {name}\n" for name in COMMANDS]),
        ("differences.md", [f"| `{name.value}` |" for name in DECISIONS]),
        ("index.md", [f"({name}.md)" for name in reference_pages.PAGES]),
    ],
)
def test_a_page_holds_its_whole_table(page: str, words: list[str]) -> None:
    text = reference_pages.render_all_pages()[page]
    assert [word for word in words if word not in text] == []


def test_fields_show_their_type_default_gates_and_what_they_are_for() -> None:
    text = reference_pages.render_kinds()
    assert "| `spec.devices.requests[].exactly.allocationMode` | string | `ExactCount` |  |" in text
    assert "| `spec.devices.requests[].exactly.adminAccess` | boolean |  | `DRAAdminAccess` |" in text
    assert "| `spec.devices[].taints[].timeAdded` | time | the time | `DRADeviceTaints` |" in text
    assert "| `spec.devices[].capacity{}.value` | Quantity |  |  | How much the device has." in text


def test_links_to_kinds_lead_to_their_titles() -> None:
    text = reference_pages.render_kinds()
    titles = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    anchors = {
        "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-") for title in titles
    }
    linked = {part.partition(")")[0] for part in text.split("](#")[1:]}
    assert linked == anchors


def test_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = reference_pages.render_all_pages()
    monkeypatch.setenv("COLUMNS", "40")
    assert reference_pages.render_all_pages() == wide
