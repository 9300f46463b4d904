"""A driver of the kit on a node: a server in this process, real sockets, allocated claims."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dray.client.client import Client
from dray.clock import SystemClock
from dray.driver import Claim, DeviceState, Driver, DriverService, DriverServiceOptions, Got, Ready, device
from dray.driver.service.grpc_servers import build_socket_paths
from dray.gates import GateSet
from dray.telemetry.logs import StructuredLogger
from dray.wire.grpc_services import DRA_V1, REGISTRATION, GrpcService, GrpcStub
from dray.wire.protobuf import ProtobufMessage
from dray.wire.unix_sockets import open_channel
from tests.contract.api import SOON, path
from tests.contract.documents import allocation, claim, consumer, pod
from tests.unit.driver.driver_server import (
    DRIVER,
    NODE,
    DriverServer,
    InterceptedTransport,
    serve_for_drivers,
)

CALL = 20.0


class Gpu(Driver):
    """A driver with four devices that records its calls, and raises what `on_call` raises."""

    name = DRIVER

    def __init__(self) -> None:
        self.received: list[tuple[str, Claim]] = []
        self.on_call: Callable[[str, Claim], None] = lambda _what, _claim: None

    def devices(self) -> Iterable[Any]:
        return [device(f"gpu-{number}") for number in range(4)]

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        self._note("prepare", claim)
        return [Ready(got, env={"GPU": got.device}) for got in claim.devices]

    def unprepare(self, claim: Claim) -> None:
        self._note("unprepare", claim)

    def _note(self, what: str, claim: Claim) -> None:
        self.received.append((what, claim))
        self.on_call(what, claim)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """The methods that were called, and the names of their claims."""
        return [(what, claim.name) for what, claim in self.received]


class HealthReportingGpu(Gpu):
    """A driver that reports the health of its devices."""

    health_seconds = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.states = [DeviceState("gpu-0", True), DeviceState("gpu-1", None, pool="elsewhere")]

    def health(self) -> Iterable[DeviceState]:
        return self.states


class DriverNode:
    """Directories of a node, a server, and drivers that start and stop."""

    def __init__(self, root: Path, server: DriverServer) -> None:
        self.root, self.server = root, server
        self.lines: list[str] = []
        self.options = DriverServiceOptions(
            node=NODE,
            plugins=root / "p",
            registry=root / "r",
            cdi=root / "cdi",
            boot_id="boot-1",
            max_wait_seconds=0.0,
            log=StructuredLogger(self._append_line, SystemClock()),
        )
        self.transport = server.connect()

    def _append_line(self, line: bytes) -> bool:
        self.lines.append(line.decode())
        return True

    @property
    def log_text(self) -> str:
        """Everything that drivers logged."""
        return "".join(self.lines)

    # --- claims ---

    async def create_pod(self, name: str) -> dict[str, Any]:
        return dict(await self.server.api.create(pod(name)))

    async def create_claim(self, name: str, *devices: str, users: Sequence[str] = (), **more: Any) -> str:
        """Create a claim with these devices, reserved for new pods of these names, and return its uid."""
        results = [allocation(each)["devices"]["results"][0] for each in devices or ("gpu-0",)]
        return await self.create_allocated_claim(name, results, users, **more)

    async def create_allocated_claim(
        self, name: str, results: Sequence[Any], users: Sequence[str] = (), *, config: Any = (), **more: Any
    ) -> str:
        api = self.server.api
        requests = more.pop("requests", None)
        made = await api.create(claim(name, requests=requests))
        pods = [await self.create_pod(user) for user in users or (f"pod-{name}",)]
        where = path("resourceclaims", name, sub="status")
        got = allocation()
        got["devices"] = {"results": list(results)} | ({"config": list(config)} if config else {})
        status = {"allocation": got | more, "reservedFor": [consumer(each) for each in pods]}
        await api.patch(where, {"status": status})
        return str(made["metadata"]["uid"])

    async def reserve(self, name: str, *users: str) -> None:
        """Reserve a claim for new pods of these names, instead of its present pods."""
        pods = [await self.create_pod(user) for user in users]
        status = {"status": {"reservedFor": [consumer(each) for each in pods]}}
        await self.server.api.patch(path("resourceclaims", name, sub="status"), status)

    async def remove_claim(self, name: str) -> None:
        """Deallocate and delete a claim, as after its pod has ended."""
        where = path("resourceclaims", name)
        await self.server.api.patch(f"{where}/status", {"status": {"reservedFor": None}})
        await self.server.api.patch(f"{where}/status", {"status": {"allocation": None}})
        await self.server.api.delete(where)
        await self.server.api.gone(where)

    # --- files ---

    def cdi(self) -> dict[str, Any]:
        """The CDI files, by name."""
        if not self.options.cdi.is_dir():
            return {}
        found = {}
        for each in sorted(self.options.cdi.iterdir()):
            with suppress(FileNotFoundError):  # deleted meanwhile
                found[each.name] = json.loads(each.read_text())
        return found

    @property
    def state(self) -> Path:
        return self.options.plugins / DRIVER / "state"

    # --- drivers ---

    @asynccontextmanager
    async def run_driver(
        self, driver: Driver | None = None, *, until_published: bool = True, **changes: Any
    ) -> AsyncIterator[AgentClient]:
        """Run a driver while the context is open; yields the agent's client."""
        options = replace(self.options, **changes)
        service = DriverService(driver or Gpu(), Client(self.transport), options)
        task = asyncio.create_task(service.run())
        sockets = build_socket_paths(service.driver.name, options.plugins, options.registry, options.instance)
        try:
            async with asyncio.timeout(SOON):
                while not sockets.registration.exists() or (until_published and not service.ready.is_set()):
                    if task.done():
                        break
                    await asyncio.sleep(0.005)
            if task.done():
                await task
            async with (
                open_channel(sockets.endpoint) as endpoint,
                open_channel(sockets.registration) as registry,
            ):
                yield AgentClient(service, endpoint, registry)
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is not None:
                await task


class AgentClient:
    """Calls a driver as an agent does."""

    def __init__(self, service: DriverService, endpoint: Any, registry: Any) -> None:
        self.service = service
        self.endpoint = endpoint
        self.registry = GrpcStub(registry, REGISTRATION)

    async def prepare(self, *claims: tuple[str, str], service: GrpcService = DRA_V1) -> Any:
        """Prepare claims, each as (uid, name); the reply by uid."""
        return (await self._call("NodePrepareResources", claims, service)).claims

    async def unprepare(self, *claims: tuple[str, str], service: GrpcService = DRA_V1) -> Any:
        return (await self._call("NodeUnprepareResources", claims, service)).claims

    async def _call(
        self, method: str, claims: Sequence[tuple[str, str]], service: GrpcService
    ) -> ProtobufMessage:
        claim_message = service.get_message_class("Claim")
        messages = [claim_message(namespace="default", name=name, uid=uid) for uid, name in claims]
        request = service.methods[method].request(claims=messages)
        return await GrpcStub(self.endpoint, service).call(method, request, timeout=CALL)

    async def prepare_ok(self, uid: str, name: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
        """Prepare one claim, and return (request, pool, device, CDI names) of each device."""
        response = (await self.prepare((uid, name)))[uid]
        assert response.error == ""
        return [
            (",".join(each.request_names), each.pool_name, each.device_name, tuple(each.cdi_device_ids))
            for each in response.devices
        ]

    async def expect_refusal(self, uid: str, name: str) -> str:
        """Prepare one claim that the driver must refuse, and return the error."""
        response = (await self.prepare((uid, name)))[uid]
        assert response.error
        assert not response.devices
        return str(response.error)

    async def unprepare_ok(self, uid: str, name: str) -> None:
        assert (await self.unprepare((uid, name)))[uid].error == ""


@asynccontextmanager
async def open_driver_node(gates: GateSet | None = None) -> AsyncIterator[DriverNode]:
    """Open a node without drivers, in a directory whose path is short enough for sockets."""
    root = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        async with serve_for_drivers(gates=gates) as server:
            yield DriverNode(root, server)
    finally:
        shutil.rmtree(root, ignore_errors=True)


__all__ = [
    "DRIVER",
    "NODE",
    "AgentClient",
    "DriverNode",
    "Got",
    "Gpu",
    "InterceptedTransport",
    "open_driver_node",
]
