"""R-16 in small: the leader is killed, and the linearizability of a history through all members.

The full size: `python -m tests.faults.etcd --full`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.etcd import linear
from tests.faults.etcd.faults import run
from tests.faults.etcd.field import NoEtcd, three_members


def test_small_a_killed_leader_loses_nothing_and_histories_stay_linearizable(tmp_path: Path):
    async def run_case() -> None:
        async with three_members(tmp_path) as field:
            outcome = await run(field, "kill -9 the leader", hold=4.0)
            assert not outcome.wrong, outcome.wrong[:3]
            assert outcome.acknowledged > 20
            tally = await linear.campaign(field, (1, 400), seed=5)
            assert not tally.wrong, tally.wrong[:3]

    try:
        asyncio.run(asyncio.wait_for(run_case(), 120))
    except NoEtcd as missing:
        pytest.skip(str(missing))
