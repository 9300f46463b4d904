"""Each device is allocated once: allocations through the API, and their errors."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.contract.api import Api, ServerResponse, path, serving
from tests.contract.documents import allocation, claim, consumer, pod, resource_slice


async def _claims(api: Api, count: int) -> list[str]:
    names = [f"c{number}" for number in range(count)]
    for name in names:
        await api.create(claim(name))
    return names


async def _allocate(api: Api, name: str, device: str, **more: Any) -> ServerResponse:
    status = {"status": {"allocation": allocation(device, **more)}}
    where = path("resourceclaims", name, sub="status")
    return await api.ask("PATCH", where, status, headers={"content-type": "application/merge-patch+json"})


async def test_a_device_has_one_holder_and_the_refusal_names_it() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await _claims(api, 2)
        assert (await _allocate(api, "c0", "gpu-0")).code == 200
        refused = await _allocate(api, "c1", "gpu-0")
        assert (refused.code, refused.reason) == (409, "Conflict")
        assert "gpu-0" in refused.message
        assert "c0" in refused.message
        assert (await _allocate(api, "c1", "gpu-1")).code == 200


async def test_one_of_many_writers_gets_the_device() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        names = await _claims(api, 16)
        answers = await asyncio.gather(*(_allocate(api, name, "gpu-0") for name in names))
        assert sorted(response.code for response in answers) == [200] + [409] * 15


async def test_a_released_device_can_be_allocated_again() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await _claims(api, 2)
        await _allocate(api, "c0", "gpu-0")
        stored = await api.get(path("resourceclaims", "c0"))
        await api.put(stored | {"status": {}}, path("resourceclaims", "c0", sub="status"))
        assert (await _allocate(api, "c1", "gpu-0")).code == 200
        await api.delete(path("resourceclaims", "c1"))
        assert (await _allocate(api, "c0", "gpu-0")).code == 200


async def test_a_dry_run_allocates_nothing() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await _claims(api, 2)
        where = path("resourceclaims", "c0", sub="status")
        await api.patch(where, {"status": {"allocation": allocation()}}, dryRun="All")
        assert (await _allocate(api, "c1", "gpu-0")).code == 200
        refused = await api.ask(
            "PATCH",
            where,
            {"status": {"allocation": allocation()}},
            headers={"content-type": "application/merge-patch+json"},
            dryRun="All",
        )
        assert refused.code == 409


async def test_a_claim_keeps_what_it_has_when_others_are_refused() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await _claims(api, 2)
        await _allocate(api, "c0", "gpu-0")
        before = await api.get(path("resourceclaims", "c1"))
        await _allocate(api, "c1", "gpu-0")
        assert await api.get(path("resourceclaims", "c1")) == before


async def test_reservations_need_an_allocation_and_are_kept_with_it() -> None:
    async with serving() as api:
        await api.create(resource_slice("s"))
        await _claims(api, 1)
        user = await api.create(pod("p"))
        where = path("resourceclaims", "c0", sub="status")
        alone = await api.ask(
            "PATCH",
            where,
            {"status": {"reservedFor": [consumer(user)]}},
            headers={"content-type": "application/merge-patch+json"},
        )
        assert alone.code == 422
        both = {"allocation": allocation(), "reservedFor": [consumer(user)]}
        stored = await api.patch(where, {"status": both})
        stored["status"].pop("allocation")
        refused = await api.ask("PUT", where, stored)
        assert refused.code == 422, "what somebody uses is not given back"
