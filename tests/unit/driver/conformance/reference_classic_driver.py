"""A conformant classic driver in plain grpcio; each subclass breaks it in one way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dray.api.classic import ClassicResourceClaim
from dray.client.client import Client
from dray.wire import grpc_services, unix_sockets
from dray.wire.grpc_services import CLASSIC_V1ALPHA1

NAME = "plain-classic.example.com"
KIND = "plain-classic.example.com/card"


class PlainClassic:
    """A conformant classic driver."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self.socket, self.cdi = folder / "r.sock", folder / "cdi"
        self.cdi.mkdir()
        self.held: dict[str, list[str]] = {}
        self.starts = 0
        self._server: Any = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        self.starts += 1
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        info = {"GetInfo": self._told}
        answers = {"NodePrepareResource": self._prepare, "NodeUnprepareResource": self._unprepare}
        served = (
            grpc_services.build_rpc_handler(grpc_services.REGISTRATION, info),
            grpc_services.build_rpc_handler(CLASSIC_V1ALPHA1, answers),
        )
        self._server.add_generic_rpc_handlers(served)
        self._server.add_insecure_port(unix_sockets.format_grpc_target(self.socket))
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _told(self, _: Any) -> Any:
        return grpc_services.REGISTRATION.get_message_class("PluginInfo")(
            type=grpc_services.RESOURCE_PLUGIN, name=NAME, supported_versions=["v1alpha1.ResourcePlugin"]
        )

    async def _prepare(self, request: Any) -> Any:
        async with self._lock:
            names = await self.prepared(request.resource_uid)
        return CLASSIC_V1ALPHA1.get_message_class("NodePrepareResourceResponse")(cdi_device=names)

    async def _unprepare(self, request: Any) -> Any:
        async with self._lock:
            self.given_back(request.resource_uid)
        return CLASSIC_V1ALPHA1.get_message_class("NodeUnprepareResourceResponse")()

    # --- what it does ---

    async def prepared(self, uid: str) -> list[str]:
        if uid not in self.held:
            known = [each.metadata.uid for each in (await self.client.list(ClassicResourceClaim)).items]
            if uid not in known:
                raise LookupError("there is no such claim")
            self.held[uid] = self.names(uid)
        self.write(uid, self.held[uid])
        return self.held[uid]

    def names(self, uid: str) -> list[str]:
        return [f"{KIND}={uid}"]

    def path(self, uid: str) -> Path:
        return self.cdi / f"{uid}.json"

    def write(self, uid: str, names: list[str]) -> None:
        devices = [{"name": name.partition("=")[2], "containerEdits": {"env": ["A=b"]}} for name in names]
        self.path(uid).write_text(json.dumps({"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}))

    def given_back(self, uid: str) -> None:
        self.held.pop(uid, None)
        self.path(uid).unlink(missing_ok=True)


class BadName(PlainClassic):
    def names(self, uid: str) -> list[str]:
        return ["no-name"]


class Leaves(PlainClassic):
    def given_back(self, uid: str) -> None:
        """The file stays."""
        self.held.pop(uid, None)


class Varies(PlainClassic):
    calls = 0

    async def prepared(self, uid: str) -> list[str]:
        self.calls += 1
        self.held[uid] = [f"{KIND}={uid}-{self.calls}"]
        self.write(uid, self.held[uid])
        return self.held[uid]


class Busy(PlainClassic):
    async def _prepare(self, request: Any) -> Any:
        if self._lock.locked():
            raise BlockingIOError("busy")
        return await super()._prepare(request)

    async def prepared(self, uid: str) -> list[str]:
        await asyncio.sleep(0.1)
        return await super().prepared(uid)


class AnyClaim(PlainClassic):
    async def prepared(self, uid: str) -> list[str]:
        self.held[uid] = self.names(uid)
        self.write(uid, self.held[uid])
        return self.held[uid]


class Strict(PlainClassic):
    def given_back(self, uid: str) -> None:
        del self.held[uid]
        self.path(uid).unlink()


class Renames(PlainClassic):
    async def restart(self) -> None:
        self.held.clear()
        await super().restart()

    def names(self, uid: str) -> list[str]:
        return [f"{KIND}={uid}-{self.starts}"]


class WritesOnce(PlainClassic):
    def write(self, uid: str, names: list[str]) -> None:
        written = self.__dict__.setdefault("written", set())
        if uid not in written:
            super().write(uid, names)
        written.add(uid)


FOUND_BY: tuple[tuple[type[PlainClassic], str], ...] = (
    (BadName, "prepare"),
    (Leaves, "prepare"),
    (Varies, "idempotent"),
    (AnyClaim, "prepare-unknown"),
    (Busy, "concurrent"),
    (Strict, "unprepare-twice"),
    (AnyClaim, "late-prepare"),
    (Renames, "restart"),
    (WritesOnce, "reboot"),
)
"""Each broken driver, with the check that finds it."""
