"""`dray bench`: figures beside a reference; tests check the results, never the times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dray.allocator.allocate import allocate
from dray.simulation.benchmarks import allocator_timing, cluster_scale
from dray.simulation.benchmarks.scenarios import read_scenario
from tests.unit.cli.commands.development.test_vectors import vector
from tests.unit.cli.conftest import Typed

REFERENCE = {
    "calibration": {"seconds": 0.2},
    "micro": {"alpha": {"stable": {"outcome": "allocated", "allocate_us": 1e9}}},
    "hard": {"knot": {"stable": {"outcome": "timeout", "seconds": 60.0}}},
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_timing, "PASSES", 2)
    monkeypatch.setattr(allocator_timing, "LOOP", 1000)
    monkeypatch.setattr(allocator_timing, "ROUNDS", 1)


def scenario(
    name: str, kind: str = "micro", devices: tuple[str, ...] = ("r=d.example.com/p/a",)
) -> dict[str, Any]:
    return {
        **vector(name),
        "family": name[0],
        "kind": kind,
        "expected": {"outcome": "allocated" if devices else "none", "devices": list(devices)},
    }


@pytest.fixture
def folder(desk: Path) -> Path:
    many = scenario("nodes", "nodes")
    many["nodes"] = [many["node"]] * 3
    for document in (scenario("alpha"), scenario("knot", "hard"), many):
        (desk / f"{document['name']}.json").write_text(json.dumps(document))
    (desk / "go_results.json").write_text(json.dumps(REFERENCE))
    return desk


def test_figures_in_a_table(typed: Typed, folder: Path) -> None:
    ended = typed("bench", ".")
    assert (ended.code, ended.err) == (0, "")
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line}
    assert "found" in rows["alpha"]
    assert "0.00" in rows["alpha"]
    assert "k" in rows
    assert "3 scenarios: 3 answered as expected, 0 given up" in ended.out
    assert rows["SCENARIO"].split() == [
        *("SCENARIO", "ANSWER", "STEPS", "FIRST", "REPEATED", "COLD", "REFERENCE"),
        *("FIRST/REF", "REPEATED/REF", "TRACE"),
    ]
    assert {"first", "repeated", "cold", "reference", "first/ref", "repeated/ref"} <= rows.keys()


def test_many_scenarios_are_shown_by_family_unless_wrong(
    typed: Typed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.cli.commands.development.bench_report._MAX_ROWS", 2)
    (folder / "gone.json").write_text(json.dumps(scenario("gone", "hard", devices=("r=d.example.com/p/b",))))
    rows = {line.split()[0]: line for line in typed("bench", ".").out.splitlines() if line}
    assert "knot" not in rows
    assert "found (WRONG)" in rows["gone"]
    assert any(line.startswith("knot") for line in typed("bench", ".", "-v").out.splitlines())


def timed(name: str, micros: Any, **changes: Any) -> dict[str, Any]:
    return {**vector(name, **changes), "goMicros": micros}


def test_vectors_on_lines_with_the_time_on_record(typed: Typed, desk: Path) -> None:
    none = {"error": "timeout", "results": []}
    lines = [timed("v", 1e9), timed("w", 0.001, device="b"), timed("x", 5.5, upstream=none)]
    (desk / "real.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    ended = typed("bench", "real.jsonl", "-o", "json")
    assert (ended.code, ended.err) == (1, "")
    told = json.loads(ended.out)
    v, w, x = told["scenarios"]
    assert (v["family"], v["answer"], v["right"], w["right"]) == ("real", "allocated", True, False)
    assert v["firstRatio"] < 1 < w["firstRatio"]
    assert x["referenceMicros"] is None
    assert told["percentiles"]["firstRatio"] == {
        "p50": v["firstRatio"],
        "p90": w["firstRatio"],
        "p99": w["firstRatio"],
    }


@pytest.mark.parametrize("micros", [0, -1, "fast", None])
def test_a_time_on_record_is_a_number_above_zero(micros: Any, typed: Typed, desk: Path) -> None:
    (desk / "real.jsonl").write_text(json.dumps(timed("v", micros)))
    ended = typed("bench", "real.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert "vector `v`: goMicros: expected a number above 0" in ended.err


def test_every_first_answer_has_a_stock_and_claims_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any, bool]] = []

    def spied(stock: Any, claims: Any, node: Any, **rest: Any) -> Any:
        asked.append((stock, claims, bool(stock.get_node_view(node).shape.candidate_sets)))
        return allocate(stock, claims, node, **rest)

    monkeypatch.setattr(allocator_timing, "allocate", spied)
    read = read_scenario(timed("v", 10), "f")
    assert read is not None
    allocator_timing.ScenarioRun(read, lambda: "").run()
    _cold, first, repeated = (
        asked[0],
        asked[1 : 1 + allocator_timing.FIRST_RUNS],
        asked[1 + allocator_timing.FIRST_RUNS :],
    )
    assert len({id(stock) for stock, _, _ in first}) == allocator_timing.FIRST_RUNS
    assert len({id(claims) for _, claims, _ in first}) == allocator_timing.FIRST_RUNS
    assert not any(remembered for _, _, remembered in first)
    assert len({id(stock) for stock, _, _ in repeated}) == 1
    assert all(remembered for _, _, remembered in repeated[1:])


def test_a_scenario_that_takes_long_is_measured_once() -> None:
    now = iter(range(0, 10_000_000, 3))
    read = read_scenario(timed("v", 10), "f")
    assert read is not None
    trial = allocator_timing.ScenarioRun(read, lambda: "", clock=lambda: float(next(now)))
    trial.run()
    once = next(now)
    trial.run()
    assert next(now) == once + 3


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (75, 3), (90, 4), (99, 4), (1, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: float) -> None:
    assert allocator_timing.compute_percentile([4, 2, 3, 1], percent) == expected


def test_a_wrong_answer_is_a_no(typed: Typed, desk: Path) -> None:
    (desk / "alpha.json").write_text(json.dumps(scenario("alpha", devices=("r=d.example.com/p/b",))))
    (desk / "two.json").write_text(json.dumps(scenario("two", devices=())))
    ended = typed("bench", ".")
    assert ended.code == 1
    assert "wrong: alpha, two" in ended.out
    assert ended.err.startswith("dray: no reference")


def test_only_some_families(typed: Typed, folder: Path) -> None:
    out = typed("bench", ".", "--family", "a, n").out
    assert "2 scenarios" in out
    ended = typed("bench", ".", "--family", "z")
    assert ended.code == 2
    assert "no scenario of family z" in ended.err


def test_figures_in_a_file(typed: Typed, folder: Path) -> None:
    assert typed("bench", ".", "--json", "out/figures.json").code == 0
    told = json.loads((folder / "out" / "figures.json").read_text())
    figures = {each["name"]: each for each in told["scenarios"]}
    assert figures["alpha"]["right"] is True
    assert figures["alpha"]["referenceMicros"] > 0
    assert figures["knot"]["referenceMicros"] is None


def test_cycles_need_one_search_per_shape_whatever_the_number_of_nodes(typed: Typed) -> None:
    assert [cluster_scale.measure_cycles(nodes, 3).searches for nodes in (6, 30)] == [3, 3]
    ended = typed("bench", "--nodes", "4,8", "--shapes", "2")
    assert ended.code == 0
    rows = [line.split()[:3] for line in ended.out.splitlines() if line]
    assert rows == [["NODES", "SHAPES", "SEARCHES"], ["4", "2", "2"], ["8", "2", "2"]]


def test_memory_is_measured_in_a_process_of_its_own(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster_scale.measure_footprint(20)
    assert 0 < found.before <= found.after < 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to measure"),
        (["gone"], "cannot read `gone`"),
        (["--nodes", "many"], "expected numbers such as `500,5000`"),
        (["--nodes", "0"], "expected numbers such as `500,5000`"),
        ([".", "--reference", "alpha.json"], "not a file of reference times"),
    ],
)
def test_a_wrong_command_line(arguments: list[str], words: str, typed: Typed, folder: Path) -> None:
    ended = typed("bench", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err


def test_a_scenario_that_cannot_be_read_is_broken_input(typed: Typed, desk: Path) -> None:
    broken = scenario("alpha")
    del broken["expected"]
    (desk / "alpha.json").write_text(json.dumps(broken))
    ended = typed("bench", ".")
    assert ended.code == 2
    assert "scenario `alpha` cannot be read" in ended.err
