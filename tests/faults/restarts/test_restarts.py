"""R-10 in small: 15 seconds of churn. The full size is `python -m tests.faults.restarts --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from dray.api.codec import decode_document
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from tests.contract.documents import allocation, claim, consumer, owner
from tests.e2e.use_case_cluster import named, pod
from tests.faults.restarts.campaign import Campaign
from tests.faults.restarts.order import disorder

SEED = 20260110


def test_small_everything_is_in_order_after_kills(tmp_path: Path) -> None:
    tally = asyncio.run(Campaign(tmp_path, SEED).run(15, pauses=(2.0, 4.0)))
    print(f"seed {SEED}: {tally}")
    assert sum(tally.killed.values()) >= 2
    assert tally.made > 30
    assert tally.sound(), str(tally)


def _pod(name: str, node: str = "", *, phase: str = "Pending") -> Pod:
    document = pod(name, named("c"))
    document["metadata"] |= {"uid": f"u-{name}"}
    document["status"] = {"phase": phase}
    if node:
        document["spec"]["nodeName"] = node
    return msgspec.convert(document, Pod, strict=False)


def _claim(name: str = "c", *users: str, owned_by: str = "", held: bool = True) -> ResourceClaim:
    document = claim(name)
    if owned_by:
        ref = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": owned_by, "uid": f"u-{owned_by}"}}
        document["metadata"]["ownerReferences"] = [owner(ref)]
    refs = [consumer({"metadata": {"name": user, "uid": f"u-{user}"}}) for user in users]
    document["status"] = {"reservedFor": refs} | ({"allocation": allocation(node="n0")} if held else {})
    found = decode_document(document).object
    assert isinstance(found, ResourceClaim)
    return found


@pytest.mark.parametrize(
    ("pods", "claims", "said"),
    [
        ([_pod("p")], [], "pod p has no node and no reason"),
        ([_pod("p", "n0")], [], "pod p is on n0 without claim c"),
        ([_pod("p", "n1")], [_claim("c", "p")], "pod p is on n1, its claim c is not"),
        ([_pod("p", "n0"), _pod("q", "n0")], [_claim("c", "q")], "pod p uses claim c without a reservation"),
        ([], [_claim("c", "p")], "claim c is reserved for p, which is gone"),
        ([], [_claim("c")], "claim c holds devices for nobody"),
        ([], [_claim("c", owned_by="p", held=False)], "claim c is left of pod p"),
        ([_pod("p", "n0", phase="Failed")], [_claim("c", "p")], "claim c is reserved for p, which is gone"),
    ],
)
def test_disorder_is_noticed(pods: list[Pod], claims: list[ResourceClaim], said: str) -> None:
    assert disorder(pods, claims) == [said]


def test_order_is_order() -> None:
    assert disorder([_pod("p", "n0"), _pod("q", "n0", phase="Succeeded")], [_claim("c", "p")]) == []
