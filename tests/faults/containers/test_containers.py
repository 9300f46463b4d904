"""Containers of an unlucky node, in small: the full size is `python -m tests.faults.containers --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.containers.campaign import Tally, campaign

SEED = 20261116


def test_small_every_container_ends_once_and_nothing_of_it_runs_on(tmp_path: Path) -> None:
    tally = asyncio.run(campaign(tmp_path, 20, SEED))
    print(f"seed {SEED}: {tally}")
    assert tally.rounds == 20
    assert tally.sound(), str(tally)


def test_a_tally_with_anything_in_its_lists_is_not_sound() -> None:
    assert Tally().sound()
    assert not Tally(left_running=["x"]).sound()
    assert not Tally(wrong_ends=["x"]).sound()
    assert not Tally(ran_twice=["x"]).sound()
    assert not Tally(not_cleaned=["x"]).sound()
