"""From a kubeconfig to a client, in one line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.client.client import Client
from dray.client.config.kubeconfig import find_access
from dray.client.rest_client import Habits
from dray.client.transports.http import Http


@asynccontextmanager
async def connected(file: str = "", context: str = "", habits: Habits | None = None) -> AsyncIterator[Client]:
    """A client of the server that a kubeconfig names, or of the cluster this process runs in."""
    client = Client(Http(find_access(file, context)), habits)
    try:
        yield client
    finally:
        await client.close()
