"""S-07, the agent's side: broken replies of a driver, which must not disturb the agent.

Theory of operation: a server replies to every method with bytes: a valid reply that is cut, changed, doubled
or replaced. Whatever arrives, each claim of a call has an outcome, a registration is valid or refused with a
message of one line, and nothing is raised.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dray.node.plugins import registration_validation
from dray.node.plugins.driver_client import DriverCallOptions, PluginRegistration, build_driver_client
from dray.node.plugins.driver_interface import ClaimRef, DriverCallFailure
from dray.node.plugins.registration_validation import RegistrationRefusal
from dray.wire import grpc_services, unix_sockets
from dray.wire.grpc_services import GrpcStub, UnreadableReplyError
from tests.e2e.plain_messages import DRA, METHODS, REGISTRATION, message

CLAIMS = [ClaimRef("default", name, f"uid-{name}") for name in "ab"]
STREAMED = 5
"""Messages in a stream of health."""


@dataclass
class Frames:
    """How many replies there were, and what came of them."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.breaches and len(self.outcomes) > 3

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return f"{self.count} replies: {outcomes}; breaches: {'; '.join(self.breaches[:3]) or 'none'}"


class Liar:
    """Answers with what it likes."""

    def __init__(self, chance: random.Random, socket: Path) -> None:
        self._chance = chance
        self._good = self._replies(socket)

    def _replies(self, socket: Path) -> dict[str, bytes]:
        prepared = message(DRA.format("v1"), METHODS["NodePrepareResources"][1])()
        unprepared = message(DRA.format("v1"), METHODS["NodeUnprepareResources"][1])()
        for claim in CLAIMS:
            prepared.claims[claim.uid].devices.add(
                request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["a.b/c=d"]
            )
            unprepared.claims[claim.uid].error = "busy"
        said = message(REGISTRATION, "PluginInfo")(
            type="DRAPlugin",
            name="liar.example.com",
            endpoint=str(socket),
            supported_versions=["v1.DRAPlugin"],
        )
        states = message("v1.DRAResourceHealth", "NodeWatchResourcesResponse")()
        states.devices.add(device={"pool_name": "p", "device_name": "d"}, health=2, message="ill")
        made = {
            "NodePrepareResources": prepared,
            "NodeUnprepareResources": unprepared,
            "GetInfo": said,
            "NodeWatchResources": states,
        }
        return {name: each.SerializeToString() for name, each in made.items()}

    def reply(self, method: str) -> bytes:
        """A good reply, or what is left of it."""
        content, chance = bytearray(self._good[method]), self._chance
        for _ in range(chance.choice((0, 0, 1, 1, 1, 8))):
            place = chance.randrange(len(content) + 1)
            way = chance.randrange(5)
            if way == 0:
                del content[place:]
            elif way == 1:
                content[place : place + 1] = chance.randbytes(1)
            elif way == 2:
                content[place:place] = chance.randbytes(chance.randrange(1, 9))
            elif way == 3:
                content += content[place:]
            else:
                del content[place : place + chance.randrange(1, 9)]
        return bytes(content) if chance.random() > 0.05 else chance.randbytes(chance.randrange(64))

    def service(self, call: Any) -> Any:
        """What a gRPC server asks a handler for."""
        method = call.method.rpartition("/")[2]

        async def answer(_request: bytes, _context: Any) -> bytes:
            return self.reply(method)

        async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
            for _ in range(STREAMED):
                yield self.reply(method)

        if method == "NodeWatchResources":
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


@asynccontextmanager
async def lying(chance: random.Random) -> AsyncIterator[Path]:
    """The socket of a liar."""
    with tempfile.TemporaryDirectory(prefix="dray-") as folder:
        path = Path(folder) / "x.sock"
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([Liar(chance, path)])
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        try:
            yield path
        finally:
            await server.stop(None)


async def frames(count: int, seed: int) -> Frames:
    """Take so many replies from a liar."""
    seen = Frames()
    async with lying(random.Random(seed)) as path, unix_sockets.open_channel(path) as channel:
        to = build_driver_client(
            PluginRegistration(
                "liar.example.com", False, (grpc_services.DRA_V1,), (grpc_services.HEALTH_V1,)
            ),
            channel,
            DriverCallOptions(),
        )
        registration = GrpcStub(channel, grpc_services.REGISTRATION)
        while seen.count < count:
            try:
                for outcomes in (await to.prepare(CLAIMS), await to.unprepare(CLAIMS)):
                    for claim in CLAIMS:
                        seen.outcomes[_kind(outcomes[claim.uid])] += 1
                seen.outcomes[await _registered(registration, path)] += 1
                stream = to.watch_health()
                assert stream is not None
                states = len([each async for each in stream])
                seen.outcomes["states"] += states
                # The first one that is nonsense ends a stream.
                seen.count += min(states + 1, STREAMED)
            except Exception as broken:  # whatever it is, it should not have come out
                seen.breaches.append(repr(broken))
            seen.count += 3
    return seen


def _kind(outcome: object) -> str:
    if isinstance(outcome, DriverCallFailure):
        assert outcome.text.isprintable(), outcome.text
        assert len(outcome.text) < 400
        return outcome.fault.value
    return "ready" if isinstance(outcome, tuple) else "given back"


async def _registered(stub: GrpcStub, path: Path) -> str:
    request = grpc_services.REGISTRATION.get_message_class("InfoRequest")()
    try:
        said = await stub.call("GetInfo", request, timeout=30.0)
    except UnreadableReplyError:
        return "unreadable registration"
    offer = registration_validation.validate_registration(said, path)
    if isinstance(offer, RegistrationRefusal):
        assert offer.text.isprintable(), offer.text
        return "refused registration"
    return "registration"
