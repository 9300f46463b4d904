"""R-18 in small: forced fail-overs in made time; in full `python -m tests.faults.elections --full`."""

from __future__ import annotations

from tests.faults.elections import timeless
from tests.faults.elections.campaign import campaign

SEED = 20260118


def test_small_never_do_two_leaders_write() -> None:
    tally = timeless.run(campaign(25, SEED))
    print(f"seed {SEED}: {tally}")
    assert tally.fail_overs == 25
    assert tally.writes > 100
    assert tally.sound(), str(tally)


def test_small_without_a_look_at_the_clock_they_would() -> None:
    tally = timeless.run(campaign(60, 1, fenced=False))
    assert tally.returned, str(tally)
