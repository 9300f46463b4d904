"""R-08 with two real schedulers in small. The full size is `python -m tests.faults.schedulers --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.schedulers.campaign import Campaign

SEED = 20260108


def test_small_two_schedulers_and_a_kill_never_share_a_device(tmp_path: Path) -> None:
    tally = asyncio.run(Campaign(tmp_path, 2, SEED).run(pods=70, pools=1, kills=1))
    print(f"seed {SEED}: {tally}")
    assert (tally.pods, tally.killed) == (70, 1)
    assert tally.judge.allocations >= 70
    assert tally.sound(), str(tally)
