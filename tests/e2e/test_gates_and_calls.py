"""What features cost beside themselves: no kind that was not there, no call that plain claims do not make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import path
from tests.e2e.gated import Cluster, Restarts
from tests.e2e.test_gates_and_skew import (
    ALTERNATIVES,
    EITHER,
    GPU,
    LISTS,
    PRIORITIES,
    SHARES,
    device_class,
    inventory,
    off,
    part,
    rooted,
)
from tests.e2e.use_case_cluster import claim, named, node, pod, request

req = pytest.mark.req

Document = dict[str, Any]
Call = tuple[str, str, str]
"""Verb, resource and subresource."""

KINDS = (
    "/api/v1",
    "/apis",
    *(f"/apis/resource.k8s.io/{version}" for version in ("v1", "v1beta1", "v1beta2")),
)
ABOUT = {"pods", "nodes", "resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"}
COUNTED = re.compile(r"apiserver_request_total\{(.*)\} ([0-9.]+)")


async def calls(cluster: Cluster) -> dict[Call, float]:
    """How often what was asked of the server so far, about claims, pods and devices."""
    counted: dict[Call, float] = {}
    for line in (await cluster.bytes_at("/metrics")).decode().splitlines():
        found = COUNTED.match(line)
        if found is None:
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1]))
        if labels["resource"] not in ABOUT:
            continue
        call = (labels["verb"], labels["resource"], labels["subresource"])
        counted[call] = counted.get(call, 0.0) + float(found[2])
    return counted


async def asked_for(cluster: Cluster, name: str, *requests: Document, **devices: Any) -> set[Call]:
    """What is asked of the server until a pod with a claim is bound, and until both are gone."""
    before = await calls(cluster)
    await cluster.make(claim(name, *requests, **devices), pod(name, named(name)))
    assert await cluster.bound(name) == "n"
    await cluster.ends(name)
    await cluster.until_free(name)
    await cluster.delete(path("resourceclaims", name))
    await cluster.gone(path("resourceclaims", name))
    return {call for call, count in (await calls(cluster)).items() if count > before.get(call, 0.0)}


@req("K4816-120", "K5491-047")
async def test_features_bring_no_kinds_and_no_calls(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    aligned = {"requests": ["a", "b"], "matchAttribute": "example.com/root"}
    async with again.running() as cluster:
        kinds = {where: await cluster.bytes_at(where) for where in KINDS}
        assert b"ResourceClaim" in kinds["/apis/resource.k8s.io/v1"]
        cards = (rooted("gpu-0", "r1", "r2"), rooted("gpu-1", "r2", "r3"), {"name": "gpu-2"})
        nic = {"name": "gpu-3", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
        await cluster.make(node("n"), device_class(GPU), device_class("big", "false"))
        await cluster.make(inventory("s", *cards, nic, pool={"priority": 3}))
        usual = await asked_for(cluster, "plain", request("a", GPU))
        assert {("POST", "resourceclaims", ""), ("POST", "pods", "binding")} <= usual, usual
        assert await asked_for(cluster, "either", EITHER) <= usual
        two = (request("a", GPU), request("b", GPU))
        assert await asked_for(cluster, "aligned", *two, constraints=[aligned]) <= usual
        assert await asked_for(cluster, "part", part("2G")) <= usual
    for gate in (ALTERNATIVES, SHARES, LISTS, PRIORITIES):
        async with again.running(off(gate)) as cluster:
            assert {where: await cluster.bytes_at(where) for where in KINDS} == kinds, gate
