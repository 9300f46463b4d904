"""R-08 and S-06 in small: writers that know nothing of each other, over HTTP, with one of them killed.

The full sizes are `python -m tests.faults.ledger --full`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.ledger import quotas
from tests.faults.ledger.campaign import Campaign
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import Size

SEED = 20260101


@pytest.mark.req("K5075-003", "K5075-129")
def test_small_two_writers_and_a_kill_never_share_a_device(tmp_path: Path):
    tally = asyncio.run(Campaign(tmp_path, 2, Size(pools=2, claims=240, kills=1, held=0.4), SEED).run())
    print(f"seed {SEED}: {tally}")
    assert tally.judge.allocations > 200
    assert tally.figures["conflicts"] > 0
    assert tally.figures["together"] > 0
    assert tally.sound(), str(tally)


def test_small_without_the_ledger_the_same_writers_share_devices(tmp_path: Path):
    size = Size(pools=1, claims=150, kills=0, held=0.6)
    tally = asyncio.run(Campaign(tmp_path, 3, size, SEED, ledger=False).run())
    assert tally.judge.violations > 0, str(tally)


def test_small_quotas_hold_against_32_clients(tmp_path: Path):
    tally = asyncio.run(quotas.campaign(tmp_path, 5, SEED))
    assert tally.sound(), str(tally)


def claim(uid: str, device: str, share: str = "", memory: str = "") -> dict:
    result = {"pool": "p", "device": device}
    if share:
        result |= {"shareID": share, "consumedCapacity": {"memory": memory}}  # type: ignore[dict-item]
    return {"metadata": {"uid": uid}, "status": {"allocation": {"devices": {"results": [result]}}}}


def preparation(name: str, uid: str) -> dict:
    return {"metadata": {"name": name}, "spec": {"claim": {"uid": uid}}}


def test_the_judge_sees_what_must_not_happen():
    """Two holders; more than there is; too many partitions; a device out of quarantine."""
    double = Judge()
    double.claim("MODIFIED", claim("a", "dedicated-0"))
    double.claim("MODIFIED", claim("b", "dedicated-0"))
    assert (double.double, double.violations) == (1, 1)
    over = Judge()
    over.claim("MODIFIED", claim("a", "shared-0", "s1", "30Gi"))
    over.claim("MODIFIED", claim("b", "shared-0", "s2", "11Gi"))
    assert (over.overuse, over.violations) == (1, 1)
    drawn = Judge()
    for i in range(3):
        drawn.claim("MODIFIED", claim(f"c{i}", f"partition-{i}"))
    assert (drawn.overdrawn, drawn.violations) == (1, 1)
    early = Judge()
    early.claim("MODIFIED", claim("a", "dedicated-0"))
    early.preparation("ADDED", preparation("p", "a"))
    early.claim("DELETED", claim("a", "dedicated-0"))
    early.claim("MODIFIED", claim("b", "dedicated-0"))
    assert (early.quarantined, early.double) == (1, 1)


def test_the_judge_lets_pass_what_is_right():
    judge = Judge()
    judge.claim("MODIFIED", claim("a", "dedicated-0"))
    judge.claim("MODIFIED", claim("a", "dedicated-0"))
    judge.preparation("ADDED", preparation("p", "a"))
    judge.claim("DELETED", claim("a", "dedicated-0"))
    judge.preparation("DELETED", preparation("p", "a"))
    judge.claim("MODIFIED", claim("b", "dedicated-0"))
    for i in range(2):
        judge.claim("MODIFIED", claim(f"p{i}", f"partition-{i}"))
        judge.claim("MODIFIED", claim(f"s{i}", "shared-0", f"s{i}", "20Gi"))
    assert judge.violations == 0
    assert judge.allocations == 6
