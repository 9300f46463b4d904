"""An API server in this process for drivers: clients with a driver's rights, and transports that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE
from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    Transport,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from dray.driver.publishing.publisher import Publisher, PublisherOptions
from dray.gates import GateSet
from dray.server.http.application import ApiApplication
from dray.store import Store
from tests.contract.api import SOON, Api, path, serving
from tests.contract.documents import node
from tests.support.in_process_transport import InProcessTransport
from tests.support.no_transactions import answer_not_served, is_transaction

DRIVER = "gpu.example.com"
NODE = "node-a"
SLICES = path("resourceslices")
AGENT_OF_DRAY = {ACCOUNTED_ANNOTATION: NO_RESTORE}

T = TypeVar("T")


class InterceptedTransport:
    """A transport that can be cut and moved to another server, and that records every request.

    It calls `before` before it sends a request, which may raise, and `after` with the response.
    Transactions are refused unless a test is about them.
    """

    def __init__(self, inner: Transport, *, transactions: bool = False) -> None:
        self.transactions = transactions
        self.inner: Transport | None = inner
        self.before: Callable[[TransportRequest], None] = lambda _request: None
        self.after: Callable[[TransportRequest, TransportResponse], None] = lambda _request, _reply: None
        self.requests: list[TransportRequest] = []

    @property
    def address(self) -> str:
        return "this process"

    def _intercept(self, request: TransportRequest) -> Transport:
        self.requests.append(request)
        self.before(request)
        if self.inner is None:
            raise ServerUnreachableError("connection refused", sent=False)
        return self.inner

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        if is_transaction(request) and not self.transactions:
            return answer_not_served()
        reply = await self._intercept(request).request(request, timeout=timeout)
        self.after(request, reply)
        return reply

    @asynccontextmanager
    async def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AsyncIterator[TransportStream]:
        async with self._intercept(request).stream(request, idle_timeout=idle_timeout) as stream:
            yield stream

    async def close(self) -> None:
        """There is nothing to close."""

    @property
    def writes(self) -> list[TransportRequest]:
        """The requests that write."""
        return [each for each in self.requests if each.method != "GET" and "dryRun" not in each.query]


def connect_as_driver(app: ApiApplication, driver: str = DRIVER, node: str = NODE) -> Transport:
    """Connect with the identity of a driver on a node, or of one without a node."""
    groups = ["dray:drivers", f"dray:driver:{driver}", "system:authenticated"]
    return InProcessTransport(app, "driver", (*groups, *([f"dray:on-node:{node}"] if node else ())))


class DriverServer:
    """A server with a node, an administrator, and drivers."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.admin = Client(InProcessTransport(api.app, "admin", ("system:masters", "system:authenticated")))

    def connect(self, driver: str = DRIVER, node: str = NODE) -> InterceptedTransport:
        return InterceptedTransport(connect_as_driver(self.api.app, driver, node))

    def publisher(
        self, transport: InterceptedTransport | None = None, node: str = NODE, **ways: Any
    ) -> Publisher:
        return Publisher(Client(transport or self.connect(node=node)), DRIVER, node, PublisherOptions(**ways))

    async def slices(self) -> list[ResourceSlice]:
        return sorted((await self.admin.list(ResourceSlice)).items, key=lambda each: each.metadata.name)

    async def devices(self) -> list[str]:
        """The names of all devices, in the order of slices and lists."""
        return [device.name for each in await self.slices() for device in each.spec.devices]

    async def generations(self) -> set[int]:
        return {each.spec.pool.generation for each in await self.slices()}


@asynccontextmanager
async def serve_for_drivers(
    store: Store | None = None, gates: GateSet | None = None
) -> AsyncIterator[DriverServer]:
    async with serving(store, gates) as api:
        found = await api.ask("GET", path("nodes", NODE))
        if found.code == 404:
            # As an agent of dray writes it, which announces what it holds.
            await api.create(node(NODE) | {"metadata": {"name": NODE, "annotations": AGENT_OF_DRAY}})
        yield DriverServer(api)


@asynccontextmanager
async def run_publisher(publisher: Publisher) -> AsyncIterator[None]:
    """Run a publisher while the context is open."""
    task = asyncio.create_task(publisher.run())
    try:
        yield
    finally:
        broken = task.done() and not task.cancelled()
        task.cancel()
        await asyncio.wait([task])
        if broken:
            task.result()


async def wait_until(read: Callable[[], Awaitable[T]], is_so: Callable[[T], bool] = bool) -> T:
    """Wait until a value satisfies a condition, and return it."""
    deadline = asyncio.get_running_loop().time() + SOON
    while not is_so(found := await read()):
        assert asyncio.get_running_loop().time() < deadline, f"the value stays {found}"
        await asyncio.sleep(0.01)
    return found
