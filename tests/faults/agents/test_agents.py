"""R-12 in small: an agent is killed a few times; in full `python -m tests.faults.agents --full`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.faults.agents.agent import BROKEN
from tests.faults.agents.campaign import Campaign, Size, Tally
from tests.faults.agents.journal import Judge, variable

SEED = 20261112
TROUBLES = ("driver unprepared", "torn", "at any time")
A, B = "a.example.com", "b.example.com"


def _run(size: Size) -> Tally:
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        return asyncio.run(Campaign(Path(folder), size, SEED).run())


def test_small_an_agent_that_is_killed_forgets_no_claim_and_takes_none_away() -> None:
    tally = _run(Size(cycles=4, workers=3, troubles=TROUBLES))
    print(f"seed {SEED}: {tally}")
    assert tally.deaths.total() == len(TROUBLES)
    assert tally.judge.counts["prepare"] >= 4
    assert tally.sound(), str(tally)


GOOD = f"""
0 machine reboot one
0 driver {A} prepare u1 one
0 driver {A} prepared u1 one
0 container p run u1/{A}=one
0 container p end
0 driver {A} unprepare u1 one
0 driver {A} unprepared u1 one
"""


def _judged(text: str) -> list[str]:
    return Judge().read(line for line in text.split("\n") if line).finish().breaches


def test_a_life_without_faults_is_found_in_order() -> None:
    assert _judged(GOOD) == []
    assert _judged(GOOD + GOOD.replace("one", "two")) == []


@pytest.mark.parametrize(
    ("fault", "journal"),
    [
        ("ran without Prepare", GOOD.replace(f"0 driver {A} prepared u1 one\n", "")),
        ("ran without Prepare", GOOD.replace("prepared u1 one\n", "prepared u1 one\n0 machine reboot two\n")),
        ("ran without Prepare", GOOD.replace(f"u1/{A}=one", f"u1/{A}=one u1/{B}=one")),
        ("ran without its device", GOOD.replace(f"u1/{A}=one", f"u1/{A}=")),
        ("Unprepare missed", GOOD.replace(f"0 driver {A} unprepared u1 one\n", "")),
        ("Unprepare missed", GOOD + f"0 driver {A} prepare u2 one\n"),
        ("Unprepare while in use", GOOD.replace("0 container p end\n", "") + "0 container p end\n"),
        ("Unprepare while in use", GOOD.replace("p end\n", f"q run u1/{A}=one\n") + "0 container q end\n"),
        ("running twice", GOOD.replace("p end\n", f"p run u1/{A}=one\n0 container p end\n")),
        ("ran again in one boot", GOOD.replace("p end\n", f"p end\n0 container p run u1/{A}=one\n")),
        ("still running at the end", GOOD.replace("0 container p end\n", "")),
    ],
)
def test_each_planted_fault_is_found(fault: str, journal: str) -> None:
    assert any(fault in each for each in _judged(journal)), _judged(journal)


def test_a_container_sees_a_variable_for_each_part_of_a_claim() -> None:
    assert variable(A, "5f-1") == "HAS_a_example_com_5f_1"


def test_an_agent_that_is_broken_on_purpose_is_caught() -> None:
    """That pods run without asking; the other ways of `BROKEN` are tried by the full run."""
    tally = _run(Size(cycles=1, workers=1, broken="prepares nothing", patience=10.0))
    assert any(BROKEN["prepares nothing"].fault in each for each in tally.judge.breaches), str(tally)
