"""A kubelet of a few lines: calls drivers as Kubernetes does, with nothing of dray in it.

    async with Kubelet(socket) as kubelet:
        assert await kubelet.register() == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
        reply = await kubelet.prepare(Claim("default", "c", uid))

or by hand: `python -m tests.e2e.plain_kubelet SOCKET prepare NAMESPACE/NAME/UID ...`
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import grpc
import grpc.aio

from tests.e2e.plain_messages import CLASSIC, DRA, HEALTH, METHODS, REGISTRATION, message

TIMEOUT = 30.0


class Claim(NamedTuple):
    """A claim as a kubelet tells drivers of it."""

    namespace: str
    name: str
    uid: str


class Kubelet:
    """Calls one driver, found by the socket at which it registers."""

    def __init__(self, socket: str, version: str = "v1") -> None:
        self._registration = grpc.aio.insecure_channel(f"unix:{socket}")
        self._driver: Any = None
        self.socket = socket
        self.version = version
        self.info: Any = None
        """What the driver said about itself."""

    async def __aenter__(self) -> Kubelet:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._registration.close()
        if self._driver is not None:
            await self._driver.close()

    async def call(self, channel: Any, service: str, method: str, **fields: Any) -> Any:
        """One call of any service."""
        asked, answered = (message(service, name) for name in METHODS[method])
        made = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=asked.SerializeToString,
            response_deserializer=answered.FromString,
        )
        return await made(asked(**fields), timeout=TIMEOUT)

    async def register(self, *, error: str = "") -> Sequence[str]:
        """Ask who is there, and say that it is registered, or why not; the versions it offers."""
        self.info = await self.call(self._registration, REGISTRATION, "GetInfo")
        self._driver = grpc.aio.insecure_channel(f"unix:{self.info.endpoint or self.socket}")
        status = {"plugin_registered": not error, "error": error}
        await self.call(self._registration, REGISTRATION, "NotifyRegistrationStatus", **status)
        return list(self.info.supported_versions)

    async def prepare(self, *claims: Claim) -> Any:
        """Have claims prepared: entries by uid, each with `devices` and `error`."""
        return (await self._dra("NodePrepareResources", claims)).claims

    async def unprepare(self, *claims: Claim) -> Any:
        """Have claims given back: entries by uid, each with `error`."""
        return (await self._dra("NodeUnprepareResources", claims)).claims

    async def _dra(self, method: str, claims: Sequence[Claim]) -> Any:
        service = DRA.format(self.version)
        made = [message(service, "Claim")(**claim._asdict()) for claim in claims]
        return await self.call(self._driver, service, method, claims=made)

    async def prepare_classic(self, uid: str) -> list[str]:
        """The names of CDI devices, by the classic protocol."""
        reply = await self.call(self._driver, CLASSIC, "NodePrepareResource", resource_uid=uid)
        return list(reply.cdi_device)

    async def unprepare_classic(self, uid: str, cdi: Sequence[str] = ()) -> None:
        """Give a claim back by the classic protocol."""
        await self.call(self._driver, CLASSIC, "NodeUnprepareResource", resource_uid=uid, cdi_device=cdi)

    async def watch(self, version: str = "v1") -> AsyncIterator[dict[tuple[str, str], tuple[int, str]]]:
        """The health of all devices, whenever the driver tells it: a number (1 healthy, 2 not) and a text."""
        service = HEALTH.format(version)
        asked, answered = (message(service, name) for name in METHODS["NodeWatchResources"])
        stream = self._driver.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=asked.SerializeToString,
            response_deserializer=answered.FromString,
        )(asked())
        try:
            async for reply in stream:
                yield {
                    (each.device.pool_name, each.device.device_name): (each.health, each.message)
                    for each in reply.devices
                }
        finally:
            stream.cancel()


async def _run(socket: str, what: str, claims: Sequence[Claim]) -> None:
    async with Kubelet(socket) as kubelet:
        await kubelet.register()
        if what == "watch":
            async for states in kubelet.watch():
                print(states, flush=True)
        elif what == "register":
            print(kubelet.info)
        else:
            entries = await (kubelet.prepare if what == "prepare" else kubelet.unprepare)(*claims)
            print(*(f"{uid}: {entry}" for uid, entry in entries.items()), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket")
    parser.add_argument("what", choices=("register", "prepare", "unprepare", "watch"))
    parser.add_argument("claims", nargs="*", metavar="NAMESPACE/NAME/UID")
    options = parser.parse_args()
    claims = [Claim(*text.split("/")) for text in options.claims]
    asyncio.run(_run(options.socket, options.what, claims))


if __name__ == "__main__":
    main()
