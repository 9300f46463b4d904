"""Two servers on one store, each with its own cache: ledger and quotas hold for both together."""

from __future__ import annotations

import asyncio

from dray.server.admission.resource_quota import ResourceQuotaAdmission
from dray.server.http.errors import ApiStatusError
from dray.server.ledger.admission import LedgerAdmission
from dray.server.ledger.reconciliation import audit_cached_ledger
from dray.store.memory import MemoryStore
from tests.unit.claims.ledger_objects import device, slice_of
from tests.unit.server.registries import CLAIMS, CONFIGS, PREPARATIONS, QUOTAS, preparation, result, world

ROUNDS = 30


def rules(cache):
    return [LedgerAdmission(cache), ResourceQuotaAdmission(cache)]


def test_a_device_is_allocated_through_one_of_two_servers():
    async def scenario() -> None:
        store = MemoryStore()
        async with world(rules, store) as one, world(rules, store) as other:
            devices = [device(f"gpu-{i}") for i in range(ROUNDS)]
            await one.put(slice_of(devices) | {"metadata": {"name": "s"}})
            for i in range(ROUNDS):
                await one.claim(f"a{i}")
                await one.claim(f"b{i}")
            for i in range(ROUNDS):
                outcomes = await asyncio.gather(
                    one.allocate(f"a{i}", result(f"gpu-{i}")),
                    other.allocate(f"b{i}", result(f"gpu-{i}")),
                    return_exceptions=True,
                )
                refused = [outcome for outcome in outcomes if isinstance(outcome, ApiStatusError)]
                assert [failure.code for failure in refused] == [409]
            assert (await audit_cached_ledger(one.cache)).is_consistent
            assert (await audit_cached_ledger(other.cache)).is_consistent

    asyncio.run(scenario())


def test_a_preparation_at_one_server_and_a_deallocation_at_the_other_agree():
    async def scenario() -> None:
        store = MemoryStore()
        async with world(rules, store) as one, world(rules, store) as other:
            await one.put(slice_of([device("gpu-0")]) | {"metadata": {"name": "s"}})
            for i in range(ROUNDS):
                await one.claim(f"c{i}", uid=f"uid-{i}")
                await one.allocate(f"c{i}", result("gpu-0"))
                said = preparation(f"p{i}", "n1", f"c{i}", f"uid-{i}")
                deletion = other.delete(CLAIMS, "default", f"c{i}")
                steps = [one.put(said), deletion] if i % 2 else [deletion, one.put(said)]
                outcomes = await asyncio.gather(*steps, return_exceptions=True)
                prepared = not any(isinstance(outcome, ApiStatusError) for outcome in outcomes)
                assert (await audit_cached_ledger(one.cache)).rows == (2 if prepared else 0)
                if prepared:
                    await other.delete(PREPARATIONS, "", f"p{i}")
            assert (await audit_cached_ledger(other.cache)).rows == 0

    asyncio.run(scenario())


def test_a_limit_holds_over_both_servers():
    async def scenario() -> None:
        store = MemoryStore()
        async with world(rules, store) as one, world(rules, store) as other:
            for limit in range(1, 6):
                name = f"n{limit}"
                hard = {
                    "apiVersion": "v1",
                    "kind": "ResourceQuota",
                    "spec": {"hard": {"configmaps": str(limit)}},
                }
                await one.put(hard | {"metadata": {"name": "q", "namespace": name}})
                config = {"apiVersion": "v1", "kind": "ConfigMap"}
                outcomes = await asyncio.gather(
                    *(
                        server.put(config | {"metadata": {"name": f"{who}{i}", "namespace": name}})
                        for i in range(6)
                        for who, server in (("a", one), ("b", other))
                    ),
                    return_exceptions=True,
                )
                assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == limit
                await other.caught_up()
                assert len(other.cache.list_objects(CONFIGS, name)) == limit
                held = other.cache.get(QUOTAS, name, "q")
                assert held is not None
                assert held.document["status"]["used"] == {"configmaps": str(limit)}

    asyncio.run(scenario())
