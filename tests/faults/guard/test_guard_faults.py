"""The guard on Kubernetes in small. The full size is `python -m tests.faults.guard --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.faults.guard.crashes import CrashSize, run_crashes
from tests.faults.guard.race import PODS, run_race
from tests.kubernetes.binaries import require_program

SEED = 20261118


def test_small_two_kinds_of_schedulers_never_share_a_device(tmp_path: Path) -> None:
    require_program("kube-apiserver")
    tally = asyncio.run(run_race(tmp_path, 2, SEED, is_guarded=True))
    print(f"seed {SEED}: {tally}")
    assert (tally.rounds, tally.judge.allocations >= 2 * PODS) == (2, True)
    assert tally.is_sound, str(tally)


def test_small_kills_of_guards_schedulers_and_api_servers_give_nothing_twice(tmp_path: Path) -> None:
    require_program("kube-apiserver")
    size = CrashSize(pods=40, at_once=24, faults=6)
    tally = asyncio.run(run_crashes(tmp_path, size, SEED, is_guarded=True))
    print(f"seed {SEED}: {tally}")
    assert sum(tally.faults.values()) == size.faults
    assert tally.is_sound, str(tally)
