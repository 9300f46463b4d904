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
from dray.driver import Claim, Driver, DriverService, DriverServiceOptions, Got, Ready, device
from dray.driver.service.grpc_servers import build_socket_paths
from dray.gates import GateSet
from dray.telemetry.logs import StructuredLogger
from dray.wire.grpc_services import DRA_V1, REGISTRATION, GrpcService, GrpcStub
from dray.wire.protobuf import ProtobufMessage
from dray.wire.unix_sockets import open_channel
from tests.contract.api import SOON, path
from tests.contract.documents import allocation, claim, consumer, pod
from tests.unit.driver.served import DRIVER, NODE, Served, Way, served

CALL = 20.0


class Gpu(Driver):
    """Four devices; remembers what it was asked, and raises what it is told to."""

    name = DRIVER

    def __init__(self) -> None:
        self.asked: list[tuple[str, Claim]] = []
        self.trouble: Callable[[str, Claim], None] = lambda _what, _claim: None

    def devices(self) -> Iterable[Any]:
        return [device(f"gpu-{number}") for number in range(4)]

    def prepare(self, claim: Claim) -> Iterable[Ready]:
        self._note("prepare", claim)
        return [Ready(got, env={"GPU": got.device}) for got in claim.devices]

    def unprepare(self, claim: Claim) -> None:
        self._note("unprepare", claim)

    def _note(self, what: str, claim: Claim) -> None:
        self.asked.append((what, claim))
        self.trouble(what, claim)

    @property
    def calls(self) -> list[tuple[str, str]]:
        """What was asked, and of which claim."""
        return [(what, claim.name) for what, claim in self.asked]


class Node:
    """Directories of a node, a server, and drivers that come and go."""

    def __init__(self, root: Path, server: Served) -> None:
        self.root, self.served = root, server
        self.lines: list[str] = []
        self.choices = DriverServiceOptions(
            node=NODE,
            plugins=root / "p",
            registry=root / "r",
            cdi=root / "cdi",
            boot_id="boot-1",
            log=StructuredLogger(self._took, SystemClock()),
        )
        self.way = server.way()

    def _took(self, line: bytes) -> bool:
        self.lines.append(line.decode())
        return True

    @property
    def said(self) -> str:
        """Everything that drivers logged."""
        return "".join(self.lines)

    # --- claims ---

    async def pod(self, name: str) -> dict[str, Any]:
        return dict(await self.served.api.create(pod(name)))

    async def claim(self, name: str, *devices: str, users: Sequence[str] = (), **more: Any) -> str:
        """A claim with these devices, reserved for new pods of these names, at least one; its uid."""
        results = [allocation(each)["devices"]["results"][0] for each in devices or ("gpu-0",)]
        return await self.allocated(name, results, users, **more)

    async def allocated(
        self, name: str, results: Sequence[Any], users: Sequence[str] = (), *, config: Any = (), **more: Any
    ) -> str:
        api = self.served.api
        requests = more.pop("requests", None)
        made = await api.create(claim(name, requests=requests))
        pods = [await self.pod(user) for user in users or (f"pod-{name}",)]
        where = path("resourceclaims", name, sub="status")
        got = allocation()
        got["devices"] = {"results": list(results)} | ({"config": list(config)} if config else {})
        status = {"allocation": got | more, "reservedFor": [consumer(each) for each in pods]}
        await api.patch(where, {"status": status})
        return str(made["metadata"]["uid"])

    async def reserve(self, name: str, *users: str) -> None:
        """Reserve a claim for these pods, which are made, instead of those it was reserved for."""
        pods = [await self.pod(user) for user in users]
        status = {"status": {"reservedFor": [consumer(each) for each in pods]}}
        await self.served.api.patch(path("resourceclaims", name, sub="status"), status)

    async def remove_claim(self, name: str) -> None:
        """A claim is gone, as after its pod has ended."""
        where = path("resourceclaims", name)
        await self.served.api.patch(f"{where}/status", {"status": {"reservedFor": None}})
        await self.served.api.patch(f"{where}/status", {"status": {"allocation": None}})
        await self.served.api.delete(where)
        await self.served.api.gone(where)

    # --- what is on the disk ---

    def cdi(self) -> dict[str, Any]:
        """The CDI files, by name."""
        if not self.choices.cdi.is_dir():
            return {}
        found = {}
        for each in sorted(self.choices.cdi.iterdir()):
            with suppress(FileNotFoundError):  # it went while we looked
                found[each.name] = json.loads(each.read_text())
        return found

    @property
    def state(self) -> Path:
        return self.choices.plugins / DRIVER / "state"

    # --- drivers ---

    @asynccontextmanager
    async def running(
        self, driver: Driver | None = None, *, until_published: bool = True, **choices: Any
    ) -> AsyncIterator[Line]:
        """A driver while the block lasts, and the line to it."""
        chosen = replace(self.choices, **choices)
        kit = DriverService(driver or Gpu(), Client(self.way), chosen)
        task = asyncio.create_task(kit.run())
        sockets = build_socket_paths(kit.driver.name, chosen.plugins, chosen.registry, chosen.instance)
        try:
            async with asyncio.timeout(SOON):
                while not sockets.registration.exists() or (until_published and not kit.ready.is_set()):
                    if task.done():
                        break
                    await asyncio.sleep(0.005)
            if task.done():
                await task
            async with (
                open_channel(sockets.endpoint) as endpoint,
                open_channel(sockets.registration) as registry,
            ):
                yield Line(kit, endpoint, registry)
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is not None:
                await task


class Line:
    """Calls a driver as an agent does."""

    def __init__(self, kit: DriverService, endpoint: Any, registry: Any) -> None:
        self.kit = kit
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
        shape = service.get_message_class("Claim")
        wanted = [shape(namespace="default", name=name, uid=uid) for uid, name in claims]
        request = service.methods[method].request(claims=wanted)
        return await GrpcStub(self.endpoint, service).call(method, request, timeout=CALL)

    async def ok(self, uid: str, name: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
        """Prepare one claim that can be prepared: (request, pool, device, CDI names) of each device."""
        answer = (await self.prepare((uid, name)))[uid]
        assert answer.error == ""
        return [
            (",".join(each.request_names), each.pool_name, each.device_name, tuple(each.cdi_device_ids))
            for each in answer.devices
        ]

    async def refused(self, uid: str, name: str) -> str:
        """Prepare one claim that cannot be prepared: why."""
        answer = (await self.prepare((uid, name)))[uid]
        assert answer.error
        assert not answer.devices
        return str(answer.error)

    async def given_back(self, uid: str, name: str) -> None:
        assert (await self.unprepare((uid, name)))[uid].error == ""


@asynccontextmanager
async def on_node(gates: GateSet | None = None) -> AsyncIterator[Node]:
    """A node without drivers, in a directory whose path is short enough for sockets."""
    root = Path(tempfile.mkdtemp(prefix="dray-"))
    try:
        async with served(gates=gates) as server:
            yield Node(root, server)
    finally:
        shutil.rmtree(root, ignore_errors=True)


__all__ = ["DRIVER", "NODE", "Got", "Gpu", "Line", "Node", "Way", "on_node"]
