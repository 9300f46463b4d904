"""Transactions and single writes at the same time: no device has two holders, and nothing is half done."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from dray.api.json_text import read_json
from dray.server.ledger.reconciliation import audit_cached_ledger
from dray.server.watch.cache import WatchCache
from tests.contract.api import Api
from tests.contract.backends import Backend
from tests.contract.documents import allocation, claim, config, resource_slice
from tests.contract.running import take
from tests.contract.transactions import CLAIMS, CONFIGS, commit, patch, post, send, send_single, serving_on

DEVICES, PAIRS, ROUNDS = 4, 6, 8
FREE: dict[str, Any] = {"status": {"allocation": None}}


def allocate(name: str, device: int) -> dict[str, Any]:
    return patch(f"{CLAIMS}/{name}/status", {"status": {"allocation": allocation(f"gpu-{device}")}})


def free(name: str) -> dict[str, Any]:
    return patch(f"{CLAIMS}/{name}/status", FREE)


async def work(api: Api, pair: int, rng: random.Random) -> int:
    """Allocate and free a pair of claims, together or one by one; returns how often both got a device."""
    names, got = (f"a{pair}", f"b{pair}"), 0
    for _ in range(ROUNDS):
        devices = rng.sample(range(DEVICES), 2)
        wanted = [allocate(name, device) for name, device in zip(names, devices, strict=True)]
        if pair % 3:
            reply = await send(api, *wanted)
            assert reply.code in (201, 409), reply.document
            got += reply.code == 201
        else:
            codes = [(await send_single(api, each)).code for each in wanted]
            assert set(codes) <= {200, 409}
        await commit(api, *map(free, names))
    return got


async def check_history(api: Api, after: int) -> None:
    """Replay every revision: a device has one holder, and transactions allocate both claims of a pair."""
    holders: dict[str, str] = {}
    alone: set[str] = set()
    until = await api.store.get_revision()
    for batch in await take(api.store, b"/registry/resource.k8s.io/resourceclaims/", after, until):
        (event,) = batch.events
        assert event.entry is not None
        name = event.key.decode().rpartition("/")[2]
        status = read_json(event.entry.value).get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
        for device in [device for device, holder in holders.items() if holder == name]:
            del holders[device]
        for result in results:
            assert holders.setdefault(result["device"], name) == name
        if int(name[1:]) % 3:
            # The first of a pair is followed at once by the second.
            expected = {name} if name.startswith("a") else set()
            assert alone in ({name.replace("b", "a")}, set()) if name.startswith("b") else alone == set()
            alone = expected


async def test_no_device_has_two_holders(backend: Backend) -> None:
    async with serving_on(backend) as api:
        await api.create(resource_slice("s", devices=DEVICES))
        for pair in range(PAIRS):
            await commit(api, post(CLAIMS, claim(f"a{pair}")), post(CLAIMS, claim(f"b{pair}")))
        before = await api.store.get_revision()
        done = await asyncio.gather(*(work(api, pair, random.Random(pair)) for pair in range(PAIRS)))
        assert sum(done) > 0
        await check_history(api, before)
        cache = WatchCache(api.store)
        await cache.resync()
        report = await audit_cached_ledger(cache)
        assert report.is_consistent
        assert report.rows == 0


async def test_contending_transactions_all_get_through(backend: Backend) -> None:
    """They write the same objects in opposite orders: locks in that order would wait for each other."""
    async with serving_on(backend) as api:
        for name in "ab":
            await api.create(config(name))

        async def change(number: int) -> None:
            places = "ab" if number % 2 else "ba"
            for turn in range(4):
                await commit(
                    api,
                    *(patch(f"{CONFIGS}/{name}", {"data": {f"n{number}-{turn}": "x"}}) for name in places),
                )

        async def change_alone(number: int) -> None:
            for turn in range(4):
                await api.patch(f"{CONFIGS}/{'ab'[number % 2]}", {"data": {f"single{number}-{turn}": "x"}})

        await asyncio.gather(*map(change, range(12)), *map(change_alone, range(6)))
        for name, singles in (("a", 12), ("b", 12)):
            data = (await api.get(f"{CONFIGS}/{name}"))["data"]
            assert sum(key.startswith("n") for key in data) == 48
            assert sum(key.startswith("single") for key in data) == singles
