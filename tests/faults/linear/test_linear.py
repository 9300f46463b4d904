"""R-03 in small; the full size: `python -m tests.faults.linear --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.linear import campaign

SEED = 11


def test_small_the_store_in_one_file_is_linearizable_under_kills_and_pauses(tmp_path: Path):
    tally = asyncio.run(campaign.in_a_process(tmp_path, (2, 1500), SEED))
    assert not tally.wrong, tally.wrong[:3]
    assert tally.operations >= 3000
    assert tally.refused > 0
    assert tally.kills > 0
