"""A restored server: controllers that saw a pod deleted find its claim reserved for it once more."""

from __future__ import annotations

from pathlib import Path

from dray.client.client import Client
from dray.cluster.local.transport import LocalTransport
from dray.cluster.services.api_server import RunningServer
from dray.server.http.requests import AUTHENTICATED
from dray.store import Delete, Put
from dray.store.memory import MemoryStore
from dray.telemetry.metrics import MetricsRegistry
from tests.contract.api import serving
from tests.contract.controlled import CONTROLLER, World, by_name, pod
from tests.contract.documents import claim
from tests.contract.lagging import Lagging
from tests.contract.servers import Reach


async def test_a_claim_stays_with_a_pod_that_came_back_with_it_and_is_seen_later() -> None:
    store = MemoryStore()
    async with serving(store) as api:
        reach = Reach("inside", RunningServer("", Path(), "", api.app, MetricsRegistry({}), b""))
        here = World(reach)
        lagging = Lagging(LocalTransport(api.app, CONTROLLER, (AUTHENTICATED,)), "pods")
        async with here.controlled(Client(lagging)):
            await here.make(claim("c"), pod("p", by_name("c")))
            await here.allocate("c", "p")
            await here.bind("p")
            copy = {entry.key: entry.value for entry in (await store.range(b"")).entries}
            await here.delete("p")
            await here.until(lambda: here.claim("c"), lambda seen: not seen.status.reserved_for)
            lagging.hold()
            now = {entry.key: entry.value for entry in (await store.range(b"")).entries}
            back = [Put(key, value) for key, value in copy.items() if now.get(key) != value]
            await store.txn([], [*back, *(Delete(key) for key in now if key not in copy)])
            asked = lagging.count("GET", "/pods/p")
            await here.until(lambda: _many(lagging.count("GET", "/pods/p") - asked))
            await here.until_idle()
            assert [user.name for user in (await here.claim("c")).status.reserved_for] == ["p"]
            lagging.let()
            assert (await here.claim("c")).status.allocation is not None
        await reach.close()
    await store.close()


async def _many(count: int) -> int:
    return count
