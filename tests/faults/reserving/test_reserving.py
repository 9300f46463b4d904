"""R-09 in small: pods that race for the last places of a claim, with three schedulers.

The full size is `python -m tests.faults.reserving --full`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.codec import decode_document
from dray.api.resource import ResourceClaim
from tests.contract.classic import classic_claim
from tests.contract.documents import claim
from tests.faults.reserving.rounds import MOST, Judge, campaign

SEED = 20260109


@pytest.mark.parametrize("transactions", [True, False])
def test_small_exactly_as_many_pods_get_a_place_as_there_are(tmp_path: Path, transactions: bool) -> None:
    tally = asyncio.run(campaign(tmp_path, 12, SEED, transactions=transactions))
    print(f"seed {SEED}: {tally}")
    assert tally.rounds == 12
    assert tally.sound(), str(tally)


def test_the_judge_sees_one_too_many_and_one_twice() -> None:
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"u{number}"} for number in range(MOST + 1)]
    document = claim("c") | {"status": {"reservedFor": users}}
    judge = Judge()
    found = decode_document(document).object
    assert isinstance(found, ResourceClaim)
    judge.look(found)
    assert judge.wrong == ["c: 257 users at once, 256 allowed"]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}] * 2
    classic = classic_claim("d") | {"status": {"phase": "Allocated", "userLimit": 1, "reservedFor": owners}}
    old = decode_document(classic).object
    assert isinstance(old, ClassicResourceClaim)
    judge.look(old)
    assert judge.wrong[1:] == ["d: 2 users at once, 1 allowed", "d: somebody is there twice"]
