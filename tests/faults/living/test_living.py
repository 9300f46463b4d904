"""Living containers in small, with `dray node`; in full `python -m tests.faults.living --full`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.faults.living.campaign import OUTLIVING, Size, Tally, list_sweeps, run_campaign
from tests.faults.living.driver import BROKEN
from tests.faults.living.journal import Judge, list_sequences
from tests.faults.living.processes import VARIABLE, format_variable, list_living

SEED = 20261118
ORDERS = (
    ("claim", "driver", "agent", "server", "pod"),
    ("pod", "driver", "agent", "server", "claim"),
    ("driver", "pod", "agent", "claim", "server"),
    ("driver", "agent", "server", "claim", "pod"),
)


def run(size: Size, broken: str = "") -> Tally:
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        return run_campaign("dray node", Path(folder), size, SEED, broken)


def test_small_a_living_container_keeps_its_device_whatever_goes() -> None:
    tally = run(Size(len(ORDERS), orders=ORDERS))
    print(f"seed {SEED}: {tally}")
    assert (tally.rounds, tally.orders) == (len(ORDERS), set(ORDERS))
    assert tally.outlived, "no container outlived its claim"
    assert tally.looks
    assert tally.is_sound(), str(tally)


def test_a_driver_that_gives_back_at_start_is_caught() -> None:
    tally = run(OUTLIVING, "gives back at start")
    assert any(BROKEN["gives back at start"].fault in each for each in tally.judge.breaches), str(tally)


def test_every_order_is_in_one_sweep() -> None:
    sweeps = list_sweeps()
    assert [len(orders) for _, orders in sweeps] == [20] * 6
    assert len({order for _, orders in sweeps for order in orders}) == 120


GOOD = """
0 prepare u1 dev-0
0 prepared u1 dev-0
0 unprepare u1 dev-0
0 unprepared u1 dev-0
0 prepare u2 dev-0
0 prepared u2 dev-0
0 unprepare u2 dev-0
0 unprepared u2 dev-0
"""


def judge(text: str) -> list[str]:
    return Judge().read(line for line in text.split("\n") if line).finish().breaches


def test_a_life_without_faults_is_found_in_order() -> None:
    assert judge(GOOD) == []
    assert judge(GOOD.replace("0 prepared u1 dev-0\n", "0 prepared u1 dev-0\n" * 2)) == []


@pytest.mark.parametrize(
    ("fault", "journal"),
    [
        ("taken from living processes ['7']", GOOD.replace("unprepare u1 dev-0", "unprepare u1 dev-0 7")),
        ("while processes ['7'] of another", GOOD.replace("prepare u2 dev-0", "prepare u2 dev-0 7", 1)),
        ("while claim u1 has it", GOOD.replace("0 unprepared u1 dev-0\n", "")),
        ("never given back: dev-0 of claim u2", GOOD.replace("0 unprepared u2 dev-0\n", "")),
    ],
)
def test_each_planted_fault_is_found(fault: str, journal: str) -> None:
    assert any(fault in each for each in judge(journal)), judge(journal)


def test_calls_and_events_of_a_claim_are_listed_in_order() -> None:
    lines = [
        "0 prepare-call u1 ok",
        "0 event * driver",
        "0 prepare-call u2 error",
        "0 event u1 pod",
        "0 event * agent",
        "0 unprepare-call u1 ok",
    ]
    assert list_sequences(lines) == {
        "u1": ["prepare ok", "driver", "pod", "agent", "unprepare ok"],
        "u2": ["prepare error", "agent"],
    }


def test_a_process_is_found_by_its_device_until_it_is_dead(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    value = format_variable(journal, "u1", "dev-0")
    # The pipe tells that the program runs: until then the process may still have our environment.
    started = subprocess.Popen(
        [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"],
        env={VARIABLE: value},
        stdout=subprocess.PIPE,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"here\n"
        (found,) = list_living(journal)
        assert (found.pid, found.uid, found.device) == (started.pid, "u1", "dev-0")
        assert found.is_alive()
        assert list(list_living(tmp_path.parent / "other" / "journal")) == []
    finally:
        started.kill()
        started.communicate()
    assert list(list_living(journal)) == []
    assert not found.is_alive()
