"""R-11 in small: one kill at some points; in full `python -m tests.faults.drivers --full`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from dray.driver.preparing.prepared_claims import FailPoints
from tests.faults.drivers.campaign import ANY_TIME, Campaign
from tests.faults.drivers.victim import IN_PREPARE

SEED = 20260111
PLACES = (
    FailPoints.AFTER_SET_UP,
    FailPoints.AFTER_CDI,
    FailPoints.UNPREPARE_AFTER_TAKE_DOWN,
    IN_PREPARE,
    ANY_TIME,
)


@pytest.mark.req("K3063-134", "K3063-135", "K3063-143", "K3063-146")
def test_small_a_killed_driver_leaves_no_stray_files_and_loses_no_record() -> None:
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        tally = asyncio.run(Campaign(Path(folder), SEED).run(PLACES))
    print(f"seed {SEED}: {tally}")
    assert tally.deaths.total() == len(PLACES)
    assert tally.sound(), str(tally)
