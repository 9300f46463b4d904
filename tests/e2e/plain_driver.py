"""A driver in plain grpcio: neither the kit nor anything else of dray is in it.

    python -m tests.e2e.plain_driver --name plain.example.com --registry DIR --plugins DIR --cdi-dir DIR \
        [--node NODE --kubeconfig FILE] [--devices 2] [--classic] [--instance two]

With a kubeconfig it publishes a slice and looks up which devices a claim got; without, every claim has the
first device. A container gets `PLAIN_DEVICE` and `PLAIN_CLAIM`. What goes wrong on purpose is set by the
attributes of `PlainDriver`, by tests that have it in their own process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.e2e.plain_messages import CLASSIC, DRA, HEALTH, METHODS, REGISTRATION, message

PREPARE, UNPREPARE, WATCH = "NodePrepareResources", "NodeUnprepareResources", "NodeWatchResources"
Allocated = tuple[str, str, str]
"""Request, pool and device."""


@dataclass(frozen=True)
class Ways:
    """What the driver is called, where its files are, and what it says that it speaks."""

    name: str
    registry: Path
    plugins: Path
    cdi: Path | None = None
    type: str = "DRAPlugin"
    versions: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth")
    instance: str = ""
    endpoint: str | None = None
    """Where it says that it answers, when that is not true."""
    says: str = ""
    """What it says that it is called, when that is not true."""

    def registration(self) -> Path:
        return self.registry / f"{self.name}{self.instance}-reg.sock"

    def socket(self) -> Path:
        return self.plugins / f"dra{self.instance}.sock"


@dataclass
class PlainDriver:
    """The driver, with what it was asked and what it does wrong."""

    ways: Ways
    look_up: Callable[[str, str], list[Allocated]] | None = None
    services: tuple[str, ...] = (DRA.format("v1"), DRA.format("v1beta1"), CLASSIC, HEALTH.format("v1"))
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    statuses: list[tuple[bool, str]] = field(default_factory=list)
    """What it was told about its registration."""
    prepared: dict[str, list[str]] = field(default_factory=dict)
    health: asyncio.Queue[list[tuple[str, str, int, int, str]] | None] = field(default_factory=asyncio.Queue)
    fails: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    """Methods that end with a code."""
    errors: dict[str, str] = field(default_factory=dict)
    """Claims, by uid, that it refuses."""
    left_out: set[str] = field(default_factory=set)
    """Claims that its replies do not mention."""
    empty: set[str] = field(default_factory=set)
    """Claims for which its reply has a message without anything in it."""
    hangs: set[str] = field(default_factory=set)
    """Methods that are never answered."""
    shares: dict[str, str] = field(default_factory=dict)
    """The share of a device that it names, by device; v1beta1 has no place for it."""
    options: tuple[tuple[str, int], ...] = ()
    """Options of gRPC for its servers."""
    unknown: dict[str, int] = field(default_factory=dict)
    """How often a method does not know what it is asked for, before it does."""
    loud: bool = False
    """Whether calls are told on standard output."""
    _servers: list[Any] = field(default_factory=list)

    async def start(self) -> PlainDriver:
        """Serve the driver's socket, and only then the one that announces it."""
        await self.show()
        self._servers.append(await self._serve(self.ways.registration(), (REGISTRATION,)))
        return self

    async def _serve(self, path: Path, services: Iterable[str]) -> Any:
        path.unlink(missing_ok=True)
        server = grpc.aio.server(options=self.options)
        server.add_generic_rpc_handlers([self._serving(service) for service in services])
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        return server

    async def show(self) -> None:
        """Answer at the driver's own socket."""
        self._servers.insert(0, await self._serve(self.ways.socket(), self.services))

    async def hide(self) -> None:
        """Answer there no longer, and say nothing about it."""
        await self._servers.pop(0).stop(None)

    async def stop(self, grace: float | None = None) -> None:
        """End, after calls that are under way if there is a grace time, and take the sockets away."""
        for server in reversed(self._servers):
            await server.stop(grace)
        self._servers.clear()
        for path in (self.ways.registration(), self.ways.socket()):
            path.unlink(missing_ok=True)

    def _serving(self, service: str) -> Any:
        short = service.rpartition(".")[2]
        methods = {
            "Registration": ("GetInfo", "NotifyRegistrationStatus"),
            "DRAPlugin": (PREPARE, UNPREPARE),
            "ResourcePlugin": ("NodePrepareResource", "NodeUnprepareResource"),
            "DRAResourceHealth": (WATCH,),
        }[short]
        return grpc.method_handlers_generic_handler(
            service, {name: self._method(service, name) for name in methods}
        )

    def _method(self, service: str, name: str) -> Any:
        asked, answered = (message(service, each) for each in METHODS[name])
        codec = {"request_deserializer": asked.FromString, "response_serializer": answered.SerializeToString}
        if name == WATCH:
            return grpc.unary_stream_rpc_method_handler(self._watched(service, answered), **codec)
        answer = getattr(self, f"_{name}")

        async def serve(request: Any, context: Any) -> Any:
            if name in self.hangs:
                await asyncio.Event().wait()
            if self.unknown.get(name, 0) > 0:
                self.unknown[name] -= 1
                self._tell(f"{name} NOT_FOUND")
                await context.abort(grpc.StatusCode.NOT_FOUND, "never heard of it")
            if name in self.fails:
                await context.abort(*self.fails[name])
            self._tell(f"{name} OK")
            return await answer(service, request, answered)

        return grpc.unary_unary_rpc_method_handler(serve, **codec)

    def _tell(self, text: str) -> None:
        if self.loud:
            print(text, flush=True)

    async def _GetInfo(self, _service: str, _request: Any, answered: Any) -> Any:  # noqa: N802
        endpoint = str(self.ways.socket()) if self.ways.endpoint is None else self.ways.endpoint
        return answered(
            type=self.ways.type,
            name=self.ways.says or self.ways.name,
            endpoint=endpoint,
            supported_versions=self.ways.versions,
        )

    async def _NotifyRegistrationStatus(self, _service: str, request: Any, answered: Any) -> Any:  # noqa: N802
        self.statuses.append((request.plugin_registered, request.error))
        return answered()

    async def _NodePrepareResources(self, service: str, request: Any, answered: Any) -> Any:  # noqa: N802
        self.calls.append((f"{service}/{PREPARE}", tuple(claim.uid for claim in request.claims)))
        reply = answered()
        for claim in request.claims:
            if claim.uid in self.left_out:
                continue
            entry = reply.claims[claim.uid]
            if claim.uid in self.errors:
                entry.error = self.errors[claim.uid]
            elif claim.uid not in self.empty:
                for wanted, pool, device, cdi in await self._ready(claim):
                    answer = entry.devices.add(
                        request_names=[wanted] if wanted else [],
                        pool_name=pool,
                        device_name=device,
                        cdi_device_ids=[cdi],
                    )
                    if device in self.shares and service == DRA.format("v1"):
                        answer.share_id = self.shares[device]
        return reply

    async def _ready(self, claim: Any) -> Iterable[tuple[str, str, str, str]]:
        """Make a claim ready: look at what it got, and say in a file what its container needs."""
        got: list[Allocated] = [("", self.ways.name, "dev-0")]
        if self.look_up is not None:
            got = await asyncio.to_thread(self.look_up, claim.namespace, claim.name)
        self.prepared[claim.uid] = [device for _, _, device in got]
        names = self._write_cdi(claim.uid, self.prepared[claim.uid])
        return [(*each, name) for each, name in zip(got, names, strict=True)]

    def _write_cdi(self, uid: str, devices: list[str]) -> list[str]:
        kind = f"{self.ways.name}/plain"
        if self.ways.cdi is not None:
            made = [
                {
                    "name": f"{uid}-{device}",
                    "containerEdits": {"env": [f"PLAIN_DEVICE={device}", f"PLAIN_CLAIM={uid}"]},
                }
                for device in devices
            ]
            file = self.ways.cdi / f"{self.ways.name}-{uid}.json"
            fresh = file.with_suffix(".fresh")
            fresh.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": made}))
            fresh.rename(file)
        return [f"{kind}={uid}-{device}" for device in devices]

    async def _NodeUnprepareResources(self, service: str, request: Any, answered: Any) -> Any:  # noqa: N802
        self.calls.append((f"{service}/{UNPREPARE}", tuple(claim.uid for claim in request.claims)))
        reply = answered()
        for claim in request.claims:
            if claim.uid in self.left_out:
                continue
            entry = reply.claims[claim.uid]
            if claim.uid in self.errors:
                entry.error = self.errors[claim.uid]
            else:
                self._give_back(claim.uid)
        return reply

    def _give_back(self, uid: str) -> None:
        self.prepared.pop(uid, None)
        if self.ways.cdi is not None:
            (self.ways.cdi / f"{self.ways.name}-{uid}.json").unlink(missing_ok=True)

    async def _NodePrepareResource(self, service: str, request: Any, answered: Any) -> Any:  # noqa: N802
        self.calls.append((f"{service}/NodePrepareResource", (request.resource_uid,)))
        self.prepared[request.resource_uid] = ["dev-0"]
        return answered(cdi_device=self._write_cdi(request.resource_uid, ["dev-0"]))

    async def _NodeUnprepareResource(self, service: str, request: Any, answered: Any) -> Any:  # noqa: N802
        asked = (request.resource_uid, *request.cdi_device)
        self.calls.append((f"{service}/NodeUnprepareResource", asked))
        self._give_back(request.resource_uid)
        return answered()

    def _watched(self, service: str, answered: Any) -> Any:
        made = message(service, "DeviceHealth")

        async def watch(_request: Any, _context: Any) -> AsyncIterator[Any]:
            self.calls.append((f"{service}/{WATCH}", ()))
            while (states := await self.health.get()) is not None:
                reply = answered()
                for pool, device, health, holds, text in states:
                    reply.devices.append(
                        made(
                            device={"pool_name": pool, "device_name": device},
                            health=health,
                            health_check_timeout_seconds=holds,
                            message=text,
                        )
                    )
                yield reply

        return watch


class Published:
    """One slice of a node at the API server, through the client of Kubernetes."""

    def __init__(self, kubeconfig: str, node: str, driver: str, devices: int) -> None:
        import kubernetes

        self._client = kubernetes.config.new_client_from_config(kubeconfig)
        self._api: Any = kubernetes.client.ResourceV1Api(self._client)
        self._gone = kubernetes.client.ApiException
        self.name = f"{node}-{driver}"
        self._body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": self.name},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"dev-{number}"} for number in range(devices)],
            },
        }
        self._driver = driver

    def publish(self) -> None:
        """Write the slice; one that is there from before is replaced."""
        try:
            self._api.delete_resource_slice(self.name)
        except self._gone as failed:
            if failed.status != 404:
                raise
        self._api.create_resource_slice(self._body)

    def look_up(self, namespace: str, name: str) -> list[Allocated]:
        """Which of our devices a claim got."""
        claim = self._api.read_namespaced_resource_claim(name, namespace)
        results = claim.status.allocation.devices.results
        return [(each.request, each.pool, each.device) for each in results if each.driver == self._driver]


async def _run(options: argparse.Namespace) -> None:
    ways = Ways(
        options.name,
        options.registry,
        options.plugins,
        options.cdi_dir,
        type="ResourcePlugin" if options.classic else "DRAPlugin",
        versions=("1.0.0",) if options.classic else Ways.versions,
        instance=options.instance,
    )
    ways.plugins.mkdir(parents=True, exist_ok=True)
    look_up = None
    if options.kubeconfig and not options.classic:
        published = Published(options.kubeconfig, options.node, options.name, options.devices)
        await asyncio.to_thread(published.publish)
        look_up = published.look_up
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    driver = PlainDriver(ways, look_up, loud=True)
    for method in ("NodePrepareResource", "NodeUnprepareResource"):
        driver.unknown[method] = options.unknown
    await driver.start()
    print(f"{options.name} is ready", flush=True)
    await ended.wait()
    await driver.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="plain.example.com")
    parser.add_argument("--registry", type=Path, required=True)
    parser.add_argument("--plugins", type=Path, required=True)
    parser.add_argument("--cdi-dir", type=Path)
    parser.add_argument("--node", default="node-1")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--classic", action="store_true")
    parser.add_argument("--instance", default="")
    parser.add_argument("--unknown", type=int, default=0, help="answer NOT_FOUND so often (classic)")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
