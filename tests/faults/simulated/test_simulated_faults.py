"""R-22 in small: schedules by seed, a replay, and planted faults. The full size is `make simulate.faults`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.faults.simulated.planted import PLANTED_FAULTS
from tests.faults.simulated.schedule import FAULT_STEPS, USER_STEPS, Schedule

ROOT = Path(__file__).parents[3]
SCHEDULES = 160
MAX_UNTIL_FOUND = 160
"""A bound: which schedule finds a fault first changes with every change of the order of writes."""
PLAIN_SEED = 3


def run_program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own: it forks, and switches the collection of garbage off."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_small_schedules_by_seed_violate_nothing():
    done = run_program("-m", "tests.faults.simulated", "--seeds", f"0-{SCHEDULES - 1}", "--jobs", "2")
    print(done.stdout)
    assert f"R-22 {SCHEDULES} schedules" in done.stdout, done.stderr
    assert "; 0 with a violation;" in done.stdout
    assert done.returncode == 0


def test_a_replay_repeats_what_a_forked_schedule_did():
    forked = run_program(
        "-c",
        "from tests.faults.simulated.campaign import run_campaign\n"
        f"for outcome in run_campaign([{PLAIN_SEED}], 1): print('digest', outcome.digest)",
        PYTHONHASHSEED="1",
    )
    replayed = run_program("-m", "tests.faults.simulated", "--replay", str(PLAIN_SEED), PYTHONHASHSEED="2")
    assert forked.stdout.strip(), forked.stderr
    assert replayed.stdout.splitlines()[-1] == forked.stdout.strip()


def test_planted_faults_are_found():
    done = run_program(
        "-c",
        "from tests.faults.simulated.planted import PLANTED_FAULTS, count_until_found\n"
        "for name, planted in PLANTED_FAULTS.items():\n"
        f"    if planted.is_frequent: print(name, count_until_found(name, {MAX_UNTIL_FOUND}))",
    )
    print(done.stdout)
    found = [line for line in done.stdout.splitlines() if "found by schedule" in line]
    assert len(found) == sum(planted.is_frequent for planted in PLANTED_FAULTS.values()), done.stderr


def test_every_step_is_drawn_and_a_seed_is_a_schedule():
    drawn = {step.name for seed in range(400) for step in Schedule.from_seed(seed).steps}
    assert drawn == {*USER_STEPS, *FAULT_STEPS}
    assert Schedule.from_seed(5) == Schedule.from_seed(5)
    assert Schedule.from_seed(5) != Schedule.from_seed(6)
    shapes = [Schedule.from_seed(seed).shape for seed in range(SCHEDULES)]
    assert {shape.transactions for shape in shapes} == {True, False}
    whole = Schedule.from_seed(5)
    assert whole.without(range(1)).steps == whole.steps[1:]
