"""An informer whose connections are cut again and again misses no event and delivers none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.patches import MergePatch
from dray.client.transports.http import HttpTransport
from tests.contract.servers import reaching
from tests.contract.test_client_verbs import claim
from tests.contract.test_client_watching import until

WRITES, CLAIMS = 200, 5


class Cutter:
    """A line between client and server that somebody cuts, wherever in a message that may be."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._open: set[asyncio.StreamWriter] = set()
        self.cuts = 0

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead, back = await asyncio.open_connection("127.0.0.1", self._upstream)
        both = {writer, back}
        self._open |= both
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(ahead, writer))
        finally:
            self._open -= both
            for end in both:
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(700):  # smaller than a record: events get torn
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        self.cuts += len(self._open) // 2
        for end in self._open:
            end.transport.abort()


@asynccontextmanager
async def cut_off(reach):
    """A client of the server whose line is cut, and the one who cuts."""
    access = load_client_config(str(reach.server.kubeconfig))
    cutter = Cutter(int(reach.server.url.rpartition(":")[2]))
    line = await asyncio.start_server(cutter.connect, "127.0.0.1", 0)
    port = line.sockets[0].getsockname()[1]
    client = Client(HttpTransport(replace(access, server=f"https://127.0.0.1:{port}")))
    async with line:
        try:
            yield client, cutter
        finally:
            await client.close()
            cutter.cut()
            await asyncio.sleep(0.05)


async def written(client, random, cutter) -> tuple[dict[str, str], Counter[str]]:
    """Write, and have the line cut now and then; what is there in the end, and how often each changed."""
    there: dict[str, str] = {}
    changes: Counter[str] = Counter()
    for number in range(WRITES):
        name = f"c{random.randrange(CLAIMS)}"
        changes[name] += 1
        if name not in there:
            there[name] = (await client.create(claim(name))).metadata.resource_version
        elif random.random() < 0.2:
            await client.delete(ResourceClaim, name, "default")
            del there[name]
        else:
            patch = MergePatch({"metadata": {"labels": {"n": str(number)}}})
            changed = await client.patch(ResourceClaim, name, patch, "default")
            there[name] = changed.metadata.resource_version
        if random.random() < 0.15:
            cutter.cut()
            await asyncio.sleep(random.random() * 0.02)
    return there, changes


async def test_no_event_is_missed_or_delivered_twice(tmp_path):
    async with reaching("http", tmp_path) as reach, cut_off(reach) as (client, cutter):
        informer = Informer(
            client, ResourceClaim, options=InformerOptions(initial_backoff=0.002, max_backoff=0.01)
        )
        told: Counter[str] = Counter()
        informer.listen(
            added=lambda new: told.update([new.metadata.name]),
            updated=lambda _old, new: told.update([new.metadata.name]),
            deleted=lambda old: told.update([old.metadata.name]),
        )
        run = asyncio.create_task(informer.run())
        await informer.wait_for_sync()
        there, changes = await written(reach.client(), Random(7), cutter)

        def seen() -> dict[str, str]:
            return {c.metadata.name: c.metadata.resource_version for c in informer.list_all()}

        await until(lambda: seen() == there)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert told == changes
        assert cutter.cuts > 5
        assert informer.stats.failures > 5
        assert informer.stats.lists == 1
