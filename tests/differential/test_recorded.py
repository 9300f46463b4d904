"""What Kubernetes made of the scenarios is on record, and the allocator gives the same devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.comparison import compare
from tests.differential.recording import Recording
from tests.differential.replay import RecordedOutcome, read_outcome, replay
from tests.differential.scenario import Scenario, load_case_scenarios, load_own_scenarios

RECORDING = Recording.load(Path(__file__).parent / "recordings" / "kubernetes-1.37.jsonl")
SCENARIOS = [*load_own_scenarios(), *load_case_scenarios()]
MANY = 250


def list_replayable() -> list[tuple[Scenario, RecordedOutcome]]:
    recorded = [each for each in SCENARIOS if RECORDING.has(each)]
    outcomes = [(each, read_outcome(each, RECORDING.pictures[each.digest])) for each in recorded]
    return [(scenario, outcome) for scenario, outcome in outcomes if outcome is not None]


REPLAYABLE = list_replayable()


def test_every_scenario_is_on_record() -> None:
    missing = [each.name for each in SCENARIOS if not RECORDING.has(each)]
    assert not missing, "record them again: docs/guides/compare-with-kubernetes.md"
    assert len(REPLAYABLE) > MANY


@pytest.mark.parametrize(("scenario", "outcome"), REPLAYABLE, ids=[each.name for each, _ in REPLAYABLE])
def test_the_allocator_gives_what_kubernetes_gave(scenario: Scenario, outcome: RecordedOutcome) -> None:
    result = compare(scenario, [{"claims": outcome.allocations}], [{"claims": replay(scenario, outcome)}])
    assert not result.wrong
