"""R-14 and S-07 in small: every scenario once, some lies; in full `python -m tests.faults.plugins --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.plugins.campaign import Tally, campaign
from tests.faults.plugins.frames import frames

SEED = 20260914


def test_small_slices_go_with_their_driver_and_not_before(tmp_path: Path) -> None:
    async def run() -> Tally:
        async with campaign(tmp_path, SEED) as made:
            return await made.run(rounds=6, kills=1)

    tally = asyncio.run(run())
    print(f"seed {SEED}: {tally}")
    assert tally.scenarios.total() == 7
    assert tally.sound(), str(tally)


def test_small_whatever_a_driver_replies_is_an_outcome() -> None:
    seen = asyncio.run(frames(1000, SEED))
    print(f"seed {SEED}: {seen}")
    assert seen.sound(), str(seen)
