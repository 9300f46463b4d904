"""Opens a client for a kubeconfig."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.rest_client import ClientOptions
from dray.client.transports.http import HttpTransport


@asynccontextmanager
async def connect(
    file: str = "", context: str = "", options: ClientOptions | None = None
) -> AsyncIterator[Client]:
    """Yield a client of the server that a kubeconfig names, or of the cluster this process runs in."""
    client = Client(HttpTransport(load_client_config(file, context)), options)
    try:
        yield client
    finally:
        await client.close()
