"""The command line of the comparison, on recordings: output, exit codes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.__main__ import main, parse_arguments
from tests.differential.recording import Recorder, Recording
from tests.differential.scenario import Scenario, load_own_scenarios
from tests.differential.stacks import STACKS, is_stack

ONLY = "life: a pod with a claim"
PICTURE = {"pods": {"first": {"node": "node-1"}}, "claims": {}}


class Given:
    """A side that gives every scenario the same picture."""

    def __init__(self, picture: Any) -> None:
        self._picture = picture

    async def check(self) -> str:
        return "v1.37.0"

    async def run_scenario(self, scenario: Scenario) -> list[Any]:
        return [self._picture]

    async def close(self) -> None:
        """Nothing is open."""


def record(file: Path, picture: Any) -> str:
    """Record a side and return the name of the file."""

    async def run() -> None:
        recorder = Recorder(Given(picture), file, "given")
        await recorder.check()
        await recorder.run_scenario(next(each for each in load_own_scenarios() if each.name == ONLY))

    asyncio.run(run())
    return str(file)


def test_equal_recordings_have_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (record(tmp_path / f"{name}.jsonl", PICTURE) for name in "ab")
    assert main(parse_arguments([one, other, "--only", ONLY])) == 0
    assert capsys.readouterr().out == "1 equal · 0 decided · 0 wrong\n"


def test_a_wrong_difference_is_shown_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = record(tmp_path / "a.jsonl", PICTURE)
    other = record(tmp_path / "b.jsonl", {**PICTURE, "pods": {"first": {"node": ""}}})
    assert main(parse_arguments([one, other, "--only", ONLY])) == 1
    assert f"wrong: {ONLY}\n  0.pods.first.node: 'node-1' · ''" in capsys.readouterr().out
    assert main(parse_arguments([one, other, "--only", ONLY, "-o", "json"])) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["equal"], report["decided"], report["wrong"]) == (0, 0, 1)
    (entry,) = report["scenarios"]
    assert entry["wrong"] == [{"field": "0.pods.first.node", "a": "node-1", "b": ""}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing", "nothing"], "`nothing` is no file, and no control plane: kubernetes"),
        (["a.jsonl", "a.jsonl"], "not on record, or changed since"),
        (["a.jsonl", "a.jsonl", "--only", "nothing"], "no scenario matches"),
    ],
)
def test_a_comparison_that_is_impossible_says_why(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "a.jsonl", PICTURE)
    given = [str(tmp_path / each) if each.endswith(".jsonl") else each for each in arguments]
    assert main(parse_arguments(given)) == 2
    assert said in capsys.readouterr().err


def test_a_scenario_that_was_changed_is_not_on_record(tmp_path: Path) -> None:
    recording = Recording.load(Path(record(tmp_path / "a.jsonl", PICTURE)))
    scenario = next(each for each in load_own_scenarios() if each.name == ONLY)
    assert recording.has(scenario)
    assert not recording.has(Scenario(ONLY, (), scenario.steps))


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(parse_arguments(["--list", "--only", "life: *"])) == 0
    assert ONLY in capsys.readouterr().out.splitlines()


def test_help_names_every_control_plane(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--help"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in STACKS)
    assert is_stack("kubernetes@1.35")
    assert not is_stack("some.kubeconfig")
