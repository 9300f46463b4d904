"""A scheduler or the controllers as a process of their own, beside any Kubernetes API server.

Theory of operation: what would keep the service from ever working is found before it starts and told in a
line: a server that does not answer, credentials it does not take, rights that are missing. Afterwards a
server that goes away is waited for, and so is leadership that somebody else took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dray.client.client import Client
from dray.client.config.client_config import Access
from dray.client.errors import Unauthorized, Unreachable
from dray.client.rest_client import Caller, Habits
from dray.client.transport import Request, Transport
from dray.client.transports.http import Http
from dray.cluster.services.permissions import Rights, check
from dray.cluster.services.process_setup import spare_the_lasting, stopped_by_signals
from dray.cluster.services.supervisor import Service
from dray.errors import InputError
from dray.telemetry.endpoint import telling


@dataclass(frozen=True)
class Place:
    """Which server a service works for, how fast it may ask, and where it tells how it is."""

    access: Access
    rights: Rights
    elect: bool = True
    qps: float = 0.0
    metrics_address: str = ""


@dataclass(frozen=True)
class Working:
    """What a service that was started has to say."""

    server: str
    version: str
    metrics: str | None


async def alone(place: Place, make: Callable[[Client], Service], told: Callable[[Working], None]) -> None:
    """Run a service until somebody interrupts; raises when it cannot begin."""
    stop = stopped_by_signals()
    transport = Http(place.access)
    habits = Habits(manager=f"dray-{place.rights.service}", qps=place.qps)
    client = Client(transport, habits)
    try:
        version = await _answering(transport, place)
        service = make(client)
        checks = {"informers": lambda: _still_reading(service, place)}
        async with telling(service.metrics, checks, address=place.metrics_address or None) as address:
            told(Working(place.access.server, version, address))
            await _until(service, stop)
    finally:
        await client.close()


def _still_reading(service: Service, place: Place) -> str | None:
    """Why a service is not ready; one that may be standing by is as ready as it should be."""
    return None if service.ready.is_set() or place.elect else "still reading what there is"


async def _answering(transport: Transport, place: Place) -> str:
    """The version of the server; raises when there is no use in beginning."""
    caller = Caller(transport, Habits(manager=f"dray-{place.rights.service}", attempts=2))
    try:
        reply = await caller.call(Request("GET", "/version"), timeout=10.0)
        await check(caller, place.rights, elect=place.elect)
    except Unreachable as silent:
        raise InputError(f"{silent}; is the server that `{place.access.source}` names running?") from None
    except Unauthorized:
        raise InputError(
            f"{place.access.server} does not accept the credentials in `{place.access.source}`"
        ) from None
    return _version(reply.body)


def _version(body: bytes) -> str:
    from dray.api.json_text import read_json

    document = read_json(body)
    return str(document.get("gitVersion") or "") if isinstance(document, dict) else ""


async def _until(service: Service, stop: asyncio.Event) -> None:
    """Run a service until it ends or somebody wants it to."""
    work, stopping = asyncio.create_task(service.run()), asyncio.create_task(stop.wait())
    freezing = asyncio.create_task(_settled(service))
    try:
        await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
    finally:
        for task in (work, stopping, freezing):
            task.cancel()
        await asyncio.wait((work, stopping, freezing))


async def _settled(service: Service) -> None:
    await service.ready.wait()
    spare_the_lasting()
