"""A conformant driver in plain grpcio without the kit; each subclass breaks it in one way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.wire import grpc_services, unix_sockets

NAME = "plain.example.com"
NODE = "node-0"
KIND = "plain.example.com/device"


def slices(devices: int) -> dict[str, Any]:
    """Build the slice that the driver publishes."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "plain"},
        "spec": {
            "driver": NAME,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"dev-{i}"} for i in range(devices)],
        },
    }


class Plain:
    """A conformant driver."""

    offered: tuple[str, ...] = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth")
    type = grpc_services.DRA_PLUGIN
    served: tuple[grpc_services.GrpcService, ...] = (grpc_services.DRA_V1, grpc_services.DRA_V1BETA1)

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self.cdi = folder / "cdi"
        self.cdi.mkdir(exist_ok=True)
        self.socket = folder / "r.sock"
        self.endpoint = folder / "d.sock"
        self._server: Any = None
        self._lock = asyncio.Lock()
        self.held: dict[str, Any] = {}
        self.gone: dict[str, list[str]] = {}

    # --- being there ---

    async def start(self) -> None:
        self.read_state()
        for path in (self.socket, self.endpoint):
            path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(tuple(self.handlers()))
        for path in (self.socket, self.endpoint):
            self._server.add_insecure_port(unix_sockets.format_grpc_target(path))
        await self._server.start()

    def handlers(self) -> list[Any]:
        dra = [grpc_services.build_rpc_handler(each, self._answers(each)) for each in self.served]
        health = grpc_services.build_rpc_handler(grpc_services.HEALTH_V1, {"NodeWatchResources": self.health})
        return [self.registration(), *dra, health]

    def registration(self) -> Any:
        answers = {"GetInfo": self._told, "NotifyRegistrationStatus": self.notified}
        return grpc_services.build_rpc_handler(grpc_services.REGISTRATION, answers)

    async def stop(self) -> None:
        await self._server.stop(None)

    async def restart(self) -> None:
        await self.stop()
        self.held, self.gone = {}, {}
        await self.start()

    def read_state(self) -> None:
        file = self.folder / "state.json"
        if file.exists():
            self.held, self.gone = json.loads(file.read_text())

    def write_state(self) -> None:
        (self.folder / "state.json").write_text(json.dumps([self.held, self.gone]))

    async def _told(self, _: Any) -> Any:
        return grpc_services.REGISTRATION.get_message_class("PluginInfo")(
            type=self.type,
            name=NAME,
            endpoint=str(self.endpoint),
            supported_versions=self.offered,
        )

    async def notified(self, _: Any) -> Any:
        return grpc_services.REGISTRATION.get_message_class("RegistrationStatusResponse")()

    async def health(self, _: Any) -> AsyncIterator[Any]:
        message = grpc_services.HEALTH_V1.get_message_class
        device = message("DeviceIdentifier")(pool_name=NODE, device_name=self.healthy_device())
        yield message("NodeWatchResourcesResponse")(devices=[message("DeviceHealth")(device=device)])

    def healthy_device(self) -> str:
        return "dev-0"

    def _answers(self, service: grpc_services.GrpcService) -> dict[str, Any]:
        async def prepare(request: Any) -> Any:
            reply = service.get_message_class("NodePrepareResourcesResponse")()
            for uid, (devices, error) in (await self.prepare(list(request.claims), service)).items():
                reply.claims[uid].error = error
                reply.claims[uid].devices.extend(
                    service.get_message_class("Device")(**each) for each in devices
                )
            return reply

        async def unprepare(request: Any) -> Any:
            reply = service.get_message_class("NodeUnprepareResourcesResponse")()
            for uid, error in (await self.unprepare(list(request.claims))).items():
                reply.claims[uid].error = error
            return reply

        return {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare}

    # --- what it does ---

    async def prepare(self, claims: Sequence[Any], service: grpc_services.GrpcService) -> dict[str, Any]:
        async with self._lock:
            return {claim.uid: await self.one(claim) for claim in claims}

    async def one(self, claim: Any) -> tuple[list[Any], str]:
        known = self.held.get(claim.uid)
        if known is not None:
            self.write_cdi(claim.uid, known)
            return known, ""
        found, error = await self.found(claim)
        if found is None:
            return [], error
        results = [each for each in self.results(found) if each.driver == NAME]
        for each in results:
            if self.is_held(each.device):
                return [], f"device {each.device} is held by another claim"
        devices = [self.made(claim.uid, each) for each in results]
        self.held[claim.uid] = devices
        self.write_state()
        self.write_cdi(claim.uid, devices)
        return devices, ""

    async def found(self, claim: Any) -> tuple[ResourceClaim | None, str]:
        try:
            found = await self.client.get(ResourceClaim, claim.name, claim.namespace)
        except NotFoundError:
            return None, "there is no such claim"
        if found.metadata.uid != claim.uid:
            return None, "the claim is another one by now"
        if found.status.allocation is None:
            return None, "the claim has no devices"
        pods = [each.uid for each in found.status.reserved_for]
        if self.is_late(claim.uid, pods):
            return None, "the claim was given back"
        return found, ""

    def results(self, found: ResourceClaim) -> Sequence[Any]:
        return found.status.allocation.devices.results if found.status.allocation else ()

    def is_late(self, uid: str, pods: Sequence[str]) -> bool:
        return uid in self.gone and set(pods) <= set(self.gone[uid])

    def is_held(self, device: str) -> bool:
        return any(each["device_name"] == device for held in self.held.values() for each in held)

    def made(self, uid: str, result: Any) -> dict[str, Any]:
        return {
            "request_names": [result.request],
            "pool_name": result.pool,
            "device_name": result.device,
            "cdi_device_ids": [f"{KIND}={uid}-{result.device}"],
        }

    def cdi_file(self, uid: str) -> Path:
        return self.cdi / f"{uid}.json"

    def write_cdi(self, uid: str, devices: Sequence[Any]) -> None:
        described = [
            {"name": name.partition("=")[2], "containerEdits": {"env": ["A=b"]}}
            for each in devices
            for name in each["cdi_device_ids"]
        ]
        spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": described}
        self.cdi_file(uid).write_text(json.dumps(spec))

    async def unprepare(self, claims: Sequence[Any]) -> dict[str, str]:
        async with self._lock:
            return {claim.uid: await self.back(claim) for claim in claims}

    async def back(self, claim: Any) -> str:
        if claim.uid not in self.held:
            return ""
        self.cdi_file(claim.uid).unlink(missing_ok=True)
        del self.held[claim.uid]
        self.gone[claim.uid] = await self.pods_of(claim)
        self.write_state()
        return ""

    async def pods_of(self, claim: Any) -> list[str]:
        try:
            found = await self.client.get(ResourceClaim, claim.name, claim.namespace)
        except NotFoundError:
            return []
        return [each.uid for each in found.status.reserved_for]
