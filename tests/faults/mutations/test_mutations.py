"""S-07 on a node in small; in full `python -m tests.faults.mutations --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.mutations import checkpoints
from tests.faults.mutations.frames import frames

SEED = 20261107


def test_small_no_changed_checkpoint_of_an_agent_is_accepted(tmp_path: Path) -> None:
    seen = checkpoints.agents(1_500, SEED, tmp_path)
    assert seen.sound(), str(seen)


def test_small_no_changed_file_of_a_driver_is_accepted_and_no_other_claim_suffers(tmp_path: Path) -> None:
    seen = checkpoints.drivers(1_500, SEED, tmp_path)
    assert seen.sound(), str(seen)


def test_small_calls_that_are_broken_in_every_way_leave_a_driver_as_it_was() -> None:
    seen = asyncio.run(frames(1_500, SEED))
    assert seen.sound(), str(seen)
