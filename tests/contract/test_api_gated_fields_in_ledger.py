"""Allocated devices count in the ledger, whatever feature gates are off afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from dray.gates import GATES, GateSet
from tests.contract.api import MERGE, Api, path
from tests.contract.documents import allocation, claim, resource_slice
from tests.contract.test_api_feature_gates import Restarts

CLOSABLE = [gate for gate in GATES if gate != "DynamicResourceAllocation"]


def closing(gate: str) -> tuple[str, ...]:
    """A gate and those that need it."""
    return tuple(
        name for name in GateSet.from_defaults().enabled_names if name == gate or gate in GATES[name].requires
    )


def partitions() -> list[dict[str, Any]]:
    """Two devices that each need the whole budget of their pool, and wait for conditions before binding."""
    drawing = [{"counterSet": "board", "counters": {"memory": {"value": "4Gi"}}}]
    devices = resource_slice(
        "devices",
        consumesCounters=drawing,
        bindingConditions=["Attached"],
        bindingFailureConditions=["Lost"],
    )
    counters = resource_slice("counters", devices=0)
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "board", "counters": {"memory": {"value": "4Gi"}}}]
    for one in (devices, counters):
        one["spec"]["pool"]["resourceSliceCount"] = 2
    return [devices, counters]


async def allocate(api: Api, name: str, **result: Any) -> Any:
    status = path("resourceclaims", name, sub="status")
    patch = {"status": {"allocation": allocation(**result)}}
    return await api.ask("PATCH", status, patch, headers={"content-type": MERGE})


@pytest.mark.parametrize("gate", CLOSABLE)
async def test_counters_of_a_held_device_stay_charged(gate: str) -> None:
    again = Restarts()
    async with again.on() as api:
        for document in (*partitions(), claim("first"), claim("second")):
            await api.create(document)
        assert (await allocate(api, "first", device="gpu-0")).code == 200
    async with again.off(*closing(gate)) as api:
        response = await allocate(api, "second", device="gpu-1")
        assert (response.code, response.document["details"]["causes"][0]["reason"]) == (
            409,
            "CounterExceeded",
        )
        assert (await allocate(api, "second", device="gpu-0")).code == 409


@pytest.mark.parametrize("gate", CLOSABLE)
async def test_shares_of_a_held_device_stay_taken(gate: str) -> None:
    amounts = {"memory": {"value": "4Gi", "requestPolicy": {"default": "1Gi"}}}
    share = {"device": "gpu-0", "consumedCapacity": {"memory": "3Gi"}}
    again = Restarts()
    async with again.on() as api:
        shared = resource_slice("s", devices=1, allowMultipleAllocations=True, capacity=amounts)
        for document in (shared, claim("first"), claim("second")):
            await api.create(document)
        first = {**share, "shareID": "00000000-0000-4000-8000-000000000001"}
        assert (await allocate(api, "first", **first)).code == 200
    async with again.off(*closing(gate)) as api:
        second = {**share, "shareID": "00000000-0000-4000-8000-000000000002"}
        response = await allocate(api, "second", **second)
        assert response.code == 409, response.document
        assert (await allocate(api, "second", device="gpu-0")).code == 409
        kept = await api.get(path("resourceclaims", "first"))
        assert kept["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] == {"memory": "3Gi"}
