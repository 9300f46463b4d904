"""The sockets of a driver: registration, the DRA services or the classic one, health.

Theory of operation: the agent finds the registration socket in a directory it watches, asks who is there, and
calls the socket that the answer names. All versions of the protocol are served; they differ in the names of
services only, so one function answers both. Two processes of a driver, as during a rolling update, have
sockets of their own: their names carry an instance. Paths that would be too long for a socket give way to
digests, first the name of the socket, then that of the driver's directory.

Rules for this file: what is done with a claim is in `work`; here are messages and sockets.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.driver.preparing.preparer import Outcome, Ref, Work
from dray.driver.service.health import Healthiness
from dray.errors import InputError
from dray.telemetry.logs import Log
from dray.wire.grpc_services import (
    CLASSIC,
    DRA_PLUGIN,
    DRA_V1,
    DRA_V1BETA1,
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    HEALTH_V1BETA1,
    OFFERED,
    REGISTRATION,
    RESOURCE_PLUGIN,
    Declined,
    Message,
    Service,
    handler,
)
from dray.wire.unix_sockets import LONGEST, address, claim_directory, free_path, socket_path

STOPPING_SECONDS: Final = 5.0
"""For how long calls that are under way may go on when the driver ends."""
_DIGEST: Final = 16


@dataclass(frozen=True, slots=True)
class Sockets:
    """Where a driver serves."""

    registration: Path
    endpoint: Path


def sockets_of(driver: str, plugins: Path, registry: Path, instance: str = "") -> Sockets:
    """The sockets of a driver, or of one instance of it; `InputError` when a directory leaves no room."""
    plugins, registry = plugins.absolute(), registry.absolute()  # the agent's place is another
    ending = f"-{instance}" if instance else ""
    home = plugins / driver
    name = f"dra{ending}.sock"
    shortest = len(os.fsencode(home)) + 1 + min(len(name), _DIGEST + len(".sock"))
    if shortest > LONGEST:
        home = plugins / hashlib.sha256(driver.encode()).hexdigest()[:_DIGEST]
    return Sockets(socket_path(registry, f"{driver}{ending}-reg.sock"), socket_path(home, name))


class Registration:
    """Answers the agent's question who is there, and hears whether it was accepted."""

    def __init__(self, driver: str, sockets: Sockets, services: Iterable[Service], log: Log) -> None:
        self._driver = driver
        self._sockets = sockets
        self._services = tuple(services)
        self._log = log
        self.accepted = asyncio.Event()
        self.refusal = ""
        """What the agent said when it did not accept the driver."""

    @property
    def handler(self) -> Any:
        """What a server needs."""
        return handler(REGISTRATION, {"GetInfo": self._told, "NotifyRegistrationStatus": self._heard})

    async def _told(self, _request: Message) -> Message:
        offered = [name for name, service in OFFERED.items() if service in self._services]
        return REGISTRATION.message("PluginInfo")(
            type=RESOURCE_PLUGIN if CLASSIC in self._services else DRA_PLUGIN,
            name=self._driver,
            endpoint=str(self._sockets.endpoint),
            supported_versions=offered,
        )

    async def _heard(self, request: Message) -> Message:
        if request.plugin_registered:
            self.refusal = ""
            self.accepted.set()
            self._log.info("registered with the agent", driver=self._driver)
        else:
            self.refusal = request.error or "no reason was given"
            self.accepted.clear()
            self._log.error("the agent refused the driver", driver=self._driver, reason=self.refusal)
        return REGISTRATION.message("RegistrationStatusResponse")()


def handlers(work: Work, health: Healthiness | None, *, classic: bool) -> list[tuple[Service, Any]]:
    """The services of a driver, each with what answers it."""
    if classic:
        return [(CLASSIC, _classic(work))]
    served = [(service, _dra(service, work)) for service in (DRA_V1, DRA_V1BETA1)]
    if health is not None:
        served += [
            (service, handler(service, {"NodeWatchResources": health.stream(service)}))
            for service in (HEALTH_V1, HEALTH_V1BETA1, HEALTH_V1ALPHA1)
        ]
    return served


@asynccontextmanager
async def serving(sockets: Sockets, registration: Registration, served: Iterable[Any]) -> AsyncIterator[None]:
    """Serve while the context is open: the services first, so that whoever registers us can call at once."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_listening(sockets.endpoint, served))
        await stack.enter_async_context(_listening(sockets.registration, [registration.handler]))
        yield


@asynccontextmanager
async def _listening(path: Path, served: Iterable[Any]) -> AsyncIterator[None]:
    claim_directory(path.parent)
    free_path(path)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers(tuple(served))
    try:
        server.add_insecure_port(address(path))
    except RuntimeError as refused:
        raise InputError(f"cannot listen on the socket `{path}`: {_cause(path, refused)}") from None
    await server.start()
    path.chmod(0o600)
    mine = path.stat().st_ino
    try:
        yield
    finally:
        kept = _set_aside(path, mine)
        await server.stop(STOPPING_SECONDS)
        if kept is not None:
            kept.replace(path)


def _set_aside(path: Path, mine: int) -> Path | None:
    """A server that stops unlinks its path: hide the socket of another process that took it over."""
    try:
        if path.stat().st_ino == mine:
            return None
    except FileNotFoundError:
        return None
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    path.replace(hidden)
    return hidden


def _cause(path: Path, refused: RuntimeError) -> str:
    try:
        writable = os.access(path.parent, os.W_OK)
    except OSError:
        writable = False
    return str(refused) if writable else f"its directory `{path.parent}` cannot be written to"


# --- messages ---


def _dra(service: Service, work: Work) -> Any:
    reply, part = (
        service.message("NodePrepareResourcesResponse"),
        service.message("NodePrepareResourceResponse"),
    )
    device = service.message("Device")
    gone, gone_part = (
        service.message("NodeUnprepareResourcesResponse"),
        service.message("NodeUnprepareResourceResponse"),
    )

    def prepared(outcome: Outcome) -> Message:
        if outcome.error:
            return part(error=outcome.error)
        return part(
            devices=[
                device(
                    request_names=[each.request],
                    pool_name=each.pool,
                    device_name=each.device,
                    cdi_device_ids=each.cdi,
                )
                for each in outcome.answers
            ]
        )

    async def prepare(request: Message) -> Message:
        outcomes = await work.prepare(_refs(request))
        return reply(claims={uid: prepared(outcome) for uid, outcome in outcomes.items()})

    async def unprepare(request: Message) -> Message:
        outcomes = await work.unprepare(_refs(request))
        return gone(claims={uid: gone_part(error=outcome.error) for uid, outcome in outcomes.items()})

    return handler(service, {"NodePrepareResources": prepare, "NodeUnprepareResources": unprepare})


def _refs(request: Message) -> list[Ref]:
    return [Ref(each.uid, each.namespace, each.name) for each in request.claims]


def _classic(work: Work) -> Any:
    async def prepare(request: Message) -> Message:
        outcome = (await work.prepare([Ref(request.resource_uid)]))[request.resource_uid]
        _decline(outcome)
        names = [name for answer in outcome.answers for name in answer.cdi]
        return CLASSIC.message("NodePrepareResourceResponse")(cdi_device=names)

    async def unprepare(request: Message) -> Message:
        _decline((await work.unprepare([Ref(request.resource_uid)]))[request.resource_uid])
        return CLASSIC.message("NodeUnprepareResourceResponse")()

    return handler(CLASSIC, {"NodePrepareResource": prepare, "NodeUnprepareResource": unprepare})


def _decline(outcome: Outcome) -> None:
    if outcome.error:
        code = grpc.StatusCode.NOT_FOUND if outcome.missing else grpc.StatusCode.INTERNAL
        raise Declined(code, outcome.error)
