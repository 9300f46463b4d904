"""Opens a client for a kubeconfig."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.client.client import Client
from dray.client.config.client_config import ClientConfig
from dray.client.config.kubeconfig import load_client_config
from dray.client.rest_client import ClientOptions
from dray.client.transports.http import HttpTransport


@asynccontextmanager
async def connect(
    file: str = "", context: str = "", options: ClientOptions | None = None
) -> AsyncIterator[Client]:
    """Yield a client of the server that a kubeconfig names, or of the cluster this process runs in."""
    async with open_client(load_client_config(file, context), options) as client:
        yield client


@asynccontextmanager
async def open_client(config: ClientConfig, options: ClientOptions | None = None) -> AsyncIterator[Client]:
    """Yield a client of the server that a configuration names."""
    client = Client(HttpTransport(config), options)
    try:
        yield client
    finally:
        await client.close()
