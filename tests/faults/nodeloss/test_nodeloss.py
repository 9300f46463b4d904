"""R-13 in small. The full size is `python -m tests.faults.nodeloss --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.nodeloss.campaign import Campaign, Size
from tests.faults.nodeloss.machine import Hall

SEED = 20260113


@pytest.mark.req("K3063-159")
def test_small_a_device_returns_only_from_a_node_that_released_it_or_was_fenced(tmp_path: Path) -> None:
    tally = asyncio.run(Campaign(tmp_path, Size(), SEED).run())
    print(f"seed {SEED}: {tally}")
    assert (tally.lost, tally.fenced) == (1, 1)
    assert tally.forced > 0
    assert tally.held_back > 0
    assert tally.sound(), f"{tally}: {tally.hall.violations}, {tally.trespass}"


def test_the_hall_sees_a_device_that_two_use() -> None:
    hall = Hall()
    hall.begin(("p", "d"), "a", "here")
    hall.begin(("p", "d"), "a", "here")
    assert not hall.violations
    hall.begin(("p", "d"), "b", "there")
    assert len(hall.violations) == 1
    hall.end(("p", "d"), "a")
    assert hall.on("there") == {("p", "d")}
    assert [use.where for use in hall.log] == ["here", "here", "there"]
    hall.power_off("there")
    assert hall.uses == {}
