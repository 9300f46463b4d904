"""The way from API servers to several guards: one port; each connection goes to a guard that accepts it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress


class Balancer:
    """A load balancer like the Service of the guards; it knows nothing of leaders."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._ports, self._chance = list(ports), chance
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in self._chance.sample(self._ports, len(self._ports)):
            with suppress(OSError):
                answers, requests = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(self._copy(reader, requests), self._copy(answers, writer))
                return
        writer.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        self._writers.add(target)
        try:
            with suppress(OSError):
                while chunk := await source.read(65536):
                    target.write(chunk)
                    await target.drain()
        finally:
            target.close()
            self._writers.discard(target)
