"""An etcd whose watchers use a connection that breaks now and then, while its writers use a stable one."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

from dray.store import Store
from tests.contract.etcd_server import Cluster, binary
from tests.faults.etcd.network import Line, pump


@contextlib.asynccontextmanager
async def etcd_with_a_torn_line(folder: Path, buffered: int, seed: int) -> AsyncIterator[tuple[Store, Store]]:
    """A store to write to, and one to watch, of the same contents."""
    from dray.store.etcd.store import EtcdStore

    program = binary(folder)
    assert program is not None
    cluster = Cluster.of(folder, program)
    lines: set[Line] = set()
    server = await _proxy(cluster.endpoints[0], lines)
    proxy = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    writing = await EtcdStore.open(cluster.endpoints, timeout=20)
    watching = await EtcdStore.open((proxy,), timeout=20, buffered_events=buffered)
    tearing = asyncio.create_task(_tear(lines, random.Random(seed)))
    try:
        yield writing, watching
    finally:
        tearing.cancel()
        await watching.close()
        await writing.close()
        cluster.stop()
        server.close()
        for line in list(lines):
            line.tear()
        await asyncio.sleep(0.05)


async def _proxy(endpoint: str, lines: set[Line]) -> asyncio.Server:
    host, _, port = endpoint.partition(":")

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            beyond, onward = await asyncio.open_connection(host, int(port))
            line = Line(frozenset(), (writer, onward))
            lines.add(line)
            await asyncio.gather(pump(reader, onward), pump(beyond, writer))
            lines.discard(line)
            line.tear()
        writer.close()

    return await asyncio.start_server(passed, "127.0.0.1", 0)


async def _tear(lines: set[Line], rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.uniform(0.2, 1.0))
        for line in list(lines):
            line.tear()
