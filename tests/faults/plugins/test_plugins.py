"""R-14 in small: every scene once; in full `python -m tests.faults.plugins --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.plugins.campaign import Tally, campaign

SEED = 20260914


def test_small_slices_go_with_their_driver_and_not_before(tmp_path: Path) -> None:
    async def run() -> Tally:
        async with campaign(tmp_path, SEED) as made:
            return await made.run(rounds=6, kills=1)

    tally = asyncio.run(run())
    print(f"seed {SEED}: {tally}")
    assert tally.scenes.total() == 7
    assert tally.sound(), str(tally)
