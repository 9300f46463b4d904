"""A server in another thread, for commands that connect to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.transports.http import HttpTransport
from dray.cluster.services.api_server import ServerProcessOptions, open_server


@contextmanager
def served(directory: Path) -> Iterator[Path]:
    """The kubeconfig of a server that runs while the block lasts."""
    started: list[Path] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        try:
            async with open_server(ServerProcessOptions(directory, port=0)) as running:
                started.append(running.kubeconfig)
                ready.set()
                await stop.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(60)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


def through(kubeconfig: Path, work: Callable[[Client], Any]) -> Any:
    """What somebody does at a server."""

    async def told() -> Any:
        client = Client(HttpTransport(load_client_config(str(kubeconfig))))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(told())
