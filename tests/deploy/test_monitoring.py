"""Alerts and board: every metric in them exists in the code, every alert has its section, promtool passes."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
import yaml

from dray.cli.commands.development.reference_pages import collect_metric_tables
from dray.telemetry.metrics import MetricDefinition, MetricType
from tests.deploy.rendering import DEPLOY, find_program
from tests.outside import ROOT

MONITORING = DEPLOY / "monitoring"
RULES = MONITORING / "prometheus-rules.yaml"
RULE_TESTS = MONITORING / "prometheus-rules-test.yaml"
BOARD = MONITORING / "grafana-dashboard.json"
METRICS: dict[str, MetricDefinition] = {
    name: row for table in collect_metric_tables().values() for name, row in table.items()
}
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]
]
PANELS: list[dict[str, Any]] = json.loads(BOARD.read_text("utf-8"))["panels"]
CHARTS = [panel for panel in PANELS if panel["type"] != "row"]

WORDS = {
    "and",
    "or",
    "unless",
    "on",
    "by",
    "ignoring",
    "without",
    "group_left",
    "group_right",
    "bool",
    "offset",
}
LABELS_OF_SCRAPES = {"instance", "job", "le"}
STRING = re.compile(r'"[^"]*"')
SELECTOR = re.compile(r"(?P<metric>[a-zA-Z_:][\w:]*)\s*\{(?P<labels>[^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\((?P<labels>[^)]*)\)")
NAME = re.compile(r"(?<![\w.\[])[a-zA-Z_:][\w:]*(?!\s*\()(?![\w:])")


def list_metrics(expression: str) -> set[str]:
    """The names of metrics in an expression: what is neither a function, a keyword, nor a label."""
    plain = GROUPING.sub(" ", SELECTOR.sub(lambda found: found["metric"], STRING.sub('""', expression)))
    return set(NAME.findall(re.sub(r"\[[^]]*\]", " ", plain))) - WORDS


def list_labels(expression: str) -> set[str]:
    """The labels by which an expression selects or groups."""
    matched = [
        part.strip()
        for found in SELECTOR.finditer(expression)
        for part in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", found["labels"])
    ]
    grouped = [name.strip() for found in GROUPING.finditer(expression) for name in found["labels"].split(",")]
    return {*matched, *filter(None, grouped)}


def find_metric(name: str) -> MetricDefinition | None:
    """The metric of a series; histograms have three series, and counters end in `_total`."""
    if name in METRICS:
        return METRICS[name]
    for suffix in ("_bucket", "_sum", "_count"):
        row = METRICS.get(name.removesuffix(suffix))
        if name.endswith(suffix) and row is not None and row.type is MetricType.HISTOGRAM:
            return row
    return None


EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
    **{
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in CHARTS
        for target in panel["targets"]
    },
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_every_metric_and_label_exists_in_the_code(expression: str):
    names = list_metrics(expression)
    assert names
    unknown = {name for name in names if find_metric(name) is None}
    assert not unknown, f"not in the tables of metrics: {unknown}"
    labels = {label for name in names for label in getattr(find_metric(name), "labels", ())}
    assert list_labels(expression) <= labels | LABELS_OF_SCRAPES


def test_names_are_found_in_expressions():
    """The reader of expressions itself."""
    expression = 'sum by (a, b) (rate(x_total{c="y_total", d=~"z"}[5m])) > 0 and on (e) max(w) or vector(0)'
    assert list_metrics(expression) == {"x_total", "w"}
    assert list_labels(expression) == {"a", "b", "c", "d", "e"}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_brackets_and_ranges_are_balanced(expression: str):
    """What can be seen without promtool."""
    closing = {")": "(", "]": "[", "}": "{"}
    open_brackets: list[str] = []
    for sign in STRING.sub('""', expression):
        if sign in closing.values():
            open_brackets.append(sign)
        elif sign in closing:
            assert open_brackets.pop() == closing[sign]
    assert not open_brackets
    for function in re.finditer(r"\b(?:rate|increase)\(([^()]*)\)", expression):
        assert re.search(r"\[\d+[smhd]\]$", function[1]), function[0]


def test_alerts_are_complete():
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, rule["alert"]


def test_every_alert_has_its_section_and_every_section_its_alert():
    text = (ROOT / "docs" / "guides" / "alerts.md").read_text("utf-8")
    assert re.findall(r"^## (Dray\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["annotations"]["runbook_url"] == f"docs/guides/alerts.md#{rule['alert'].lower()}"


def run_promtool(*arguments: str) -> None:
    program = find_program("promtool")
    if program is None:
        pytest.skip("no `promtool` on PATH; the structure of the rules is checked without it")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules():
    run_promtool("check", "rules", str(RULES))


def test_alerts_fire_when_they_should():
    run_promtool("test", "rules", str(RULE_TESTS))


def test_promtool_accepts_the_expressions_of_the_board(tmp_path):
    rules = [
        {"record": f"board:panel_{number}", "expr": target["expr"]}
        for number, target in enumerate(target for panel in CHARTS for target in panel["targets"])
    ]
    file = tmp_path / "board.json"
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    run_promtool("check", "rules", str(file))


def test_panels_of_the_board_are_complete():
    identifiers = [panel["id"] for panel in PANELS]
    assert len(identifiers) == len(set(identifiers))
    titles = [panel["title"] for panel in PANELS]
    assert len(titles) == len(set(titles))
    for panel in CHARTS:
        assert panel["title"]
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_of_the_board_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
