"""Calls to a driver of the kit that are broken in every way, and connections that speak nonsense.

Theory of operation: a claim is prepared before. Then whoever can reach the sockets sends bytes that began as
a good call of every method, and, now and then, bytes that are no HTTP/2 at all. Whatever comes, every call
has an answer, the prepared claim is answered as before, and there is nothing in the directories of the driver
that was not there before.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dray.driver.service.grpc_servers import build_socket_paths
from dray.wire.grpc_services import DRA_V1, DRA_V1BETA1, REGISTRATION, GrpcService
from dray.wire.unix_sockets import open_channel
from tests.faults.mutations.bytes import spoiled
from tests.unit.driver.driver_node import DRIVER, AgentClient, DriverNode, open_driver_node

AT_ONCE = 16
ANSWER = 60.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""How HTTP/2 begins: the preface, and settings without any."""


@dataclass
class Frames:
    """How many calls there were, and what came of them."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.breaches and len(self.outcomes) >= 3

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return (
            f"{self.count} calls to a driver: {outcomes}; breaches: {'; '.join(self.breaches[:3]) or 'none'}"
        )


def _good(uid: str) -> Iterator[tuple[str, bytes]]:
    """A good call of each method."""
    for service in (DRA_V1, DRA_V1BETA1):
        for method, names in (
            ("NodePrepareResources", ("kept", "other")),
            ("NodeUnprepareResources", ("x",)),
        ):
            claims = [
                service.get_message_class("Claim")(
                    namespace="default", name=name, uid=uid if name == "kept" else "uid-x"
                )
                for name in names
            ]
            yield _path(service, method), _encoded(service, method, claims=claims)
    yield _path(REGISTRATION, "GetInfo"), _encoded(REGISTRATION, "GetInfo") + b"\x0a\x01x"
    told = {"plugin_registered": True, "error": "none"}
    method = "NotifyRegistrationStatus"
    yield _path(REGISTRATION, method), _encoded(REGISTRATION, method, **told)


def _path(service: GrpcService, method: str) -> str:
    return service.methods[method].path


def _encoded(service: GrpcService, method: str, **fields: Any) -> bytes:
    made: bytes = service.methods[method].request(**fields).SerializeToString()
    return made


class Caller:
    """Sends nonsense."""

    def __init__(self, node: DriverNode, uid: str, chance: random.Random) -> None:
        self._chance = chance
        self._good = list(_good(uid))
        found = build_socket_paths(DRIVER, node.options.plugins, node.options.registry)
        self._sockets = (found.endpoint, found.registration)
        self.seen = Frames()

    async def run(self, count: int) -> None:
        async with open_channel(self._sockets[0]) as endpoint, open_channel(self._sockets[1]) as registry:

            async def some() -> None:
                while self.seen.count < count:
                    self.seen.count += 1
                    if self._chance.random() < 0.02:
                        await self._babble(self._chance.choice(self._sockets))
                    else:
                        await self._call(endpoint, registry)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(some())

    async def _call(self, endpoint: Any, registry: Any) -> None:
        path, good = self._chance.choice(self._good)
        channel = registry if "Registration" in path else endpoint
        content = spoiled(good, self._chance)
        try:
            await channel.unary_unary(path)(content, timeout=ANSWER)
            self.seen.outcomes["answered"] += 1
        except grpc.aio.AioRpcError as failed:
            self.seen.outcomes[failed.code().name] += 1
            if failed.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN):
                self.seen.breaches.append(f"{failed.code().name} after {content!r}: {failed.details()}")

    async def _babble(self, socket: Path) -> None:
        """Something that is no call, and a connection that ends in the middle of it."""
        reader, writer = await asyncio.open_unix_connection(str(socket))
        content = spoiled(PREFACE + self._chance.randbytes(40), self._chance)
        with suppress(OSError):
            writer.write(content)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        self.seen.outcomes["babbled"] += 1
        del reader


async def frames(count: int, seed: int) -> Frames:
    """Send so many calls to a driver."""
    async with open_driver_node() as node, node.run_driver() as agent:
        uid = await node.create_claim("kept", "gpu-0")
        before = await agent.prepare_ok(uid, "kept")
        files = _files(node.root)
        caller = Caller(node, uid, random.Random(seed))
        await caller.run(count)
        seen = caller.seen
        await _judge(seen, agent, (uid, before))
        if _files(node.root) != files:
            seen.breaches.append(f"files: {sorted(_files(node.root) ^ files)[:5]}")
        # Anybody at the socket can tell it that it was refused; that is said, and nothing else comes of it.
        seen.breaches += [each[:300] for each in node.lines if "ERROR" in each and "refused the" not in each]
        await agent.unprepare_ok(uid, "kept")
    return seen


async def _judge(seen: Frames, agent: AgentClient, kept: tuple[str, Any]) -> None:
    uid, before = kept
    if await agent.prepare_ok(uid, "kept") != before:
        seen.breaches.append("the prepared claim is answered in another way")


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}
