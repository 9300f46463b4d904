"""A real server, and the transports that reach it: HTTP with TLS, ASGI, local, and frames on a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.rest_client import ClientOptions
from dray.client.transport import Transport
from dray.client.transports.framed import FramedTransport
from dray.client.transports.http import HttpTransport
from dray.cluster.local.transport import LocalTransport
from dray.cluster.services.api_server import RunningServer, ServerProcessOptions, open_server
from dray.cluster.services.certificate_renewal import ADMIN_USER
from dray.cluster.services.component_connection import ComponentConnection, connect_component
from dray.server.http.requests import AUTHENTICATED, MASTERS, RequestUser
from tests.support.in_process_transport import InProcessTransport

WAYS = ("http", "in-process", "inside", "framed")


class Reach:
    """A running server and one way to it."""

    def __init__(self, way: str, server: RunningServer) -> None:
        self.way = way
        self.server = server
        self._open: list[Client] = []
        self._connecting: list[asyncio.Task[ComponentConnection]] = []

    def client(self, habits: ClientOptions | None = None, user: str = "") -> Client:
        """A client of the administrator, or of somebody without rights."""
        client = Client(self._transport(user), habits)
        self._open.append(client)
        return client

    def _transport(self, user: str) -> Transport:
        groups = (AUTHENTICATED,) if user else (MASTERS, AUTHENTICATED)
        if self.way == "framed":
            ours, theirs = socket.socketpair()
            served = connect_component(ours, self.server.app, RequestUser(user or ADMIN_USER, groups))
            self._connecting.append(asyncio.get_running_loop().create_task(served))
            return FramedTransport(theirs)
        if self.way != "http":
            shape = InProcessTransport if self.way == "in-process" else LocalTransport
            return shape(self.server.app, user or ADMIN_USER, groups)
        access = load_client_config(str(self.server.kubeconfig))
        return HttpTransport(replace(access, headers={"Impersonate-User": user}) if user else access)

    async def close(self) -> None:
        for client in self._open:
            await client.close()
        for each in self._connecting:
            await (await each).close()


@asynccontextmanager
async def reaching(
    way: str, directory: Path, port: int = 0, store: str = "memory:", *, ledger: bool = True
) -> AsyncIterator[Reach]:
    """A server while the block lasts."""
    options = ServerProcessOptions(directory / "server", store, port=port, ledger=ledger)
    async with open_server(options) as server:
        reach = Reach(way, server)
        try:
            yield reach
        finally:
            await reach.close()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """One way after the other."""
    return str(request.param)
