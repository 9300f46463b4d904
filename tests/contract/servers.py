"""A real server, and the ways to reach it: HTTP and TLS, ASGI in this process, straight to the door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dray.client.client import Client
from dray.client.config.kubeconfig import find_access
from dray.client.rest_client import Habits
from dray.client.transport import Transport
from dray.client.transports.http import Http
from dray.client.transports.in_process import InProcess
from dray.cluster.local.transport import Inside
from dray.cluster.services.api_server import ADMIN, ServerOptions, Started, serving
from dray.server.http.requests import AUTHENTICATED, MASTERS

WAYS = ("http", "in-process", "inside")


class Reach:
    """A running server and one way to it."""

    def __init__(self, way: str, server: Started) -> None:
        self.way = way
        self.server = server
        self._open: list[Client] = []

    def client(self, habits: Habits | None = None, user: str = "") -> Client:
        """A client of the administrator, or of somebody without rights."""
        client = Client(self._transport(user), habits)
        self._open.append(client)
        return client

    def _transport(self, user: str) -> Transport:
        if self.way != "http":
            groups = (AUTHENTICATED,) if user else (MASTERS, AUTHENTICATED)
            shape = InProcess if self.way == "in-process" else Inside
            return shape(self.server.app, user or ADMIN, groups)
        access = find_access(str(self.server.kubeconfig))
        return Http(replace(access, headers={"Impersonate-User": user}) if user else access)

    async def close(self) -> None:
        for client in self._open:
            await client.close()


@asynccontextmanager
async def reaching(way: str, directory: Path, port: int = 0, store: str = "memory:") -> AsyncIterator[Reach]:
    """A server while the block lasts."""
    async with serving(ServerOptions(directory / "server", store, port=port)) as server:
        reach = Reach(way, server)
        try:
            yield reach
        finally:
            await reach.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """One way after the other."""
    return str(request.param)
