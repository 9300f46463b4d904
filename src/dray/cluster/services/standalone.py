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
from dray.client.config.client_config import ClientConfig
from dray.client.errors import ServerUnreachableError, UnauthorizedError
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transport import Transport, TransportRequest
from dray.client.transports.http import HttpTransport
from dray.cluster.services.permissions import ServicePermissions, check_permissions
from dray.cluster.services.process_setup import freeze_garbage_collector, install_stop_signals
from dray.cluster.services.supervisor import RunnableService
from dray.errors import InputError
from dray.tasks import cancel_and_wait, wait_for_first
from dray.telemetry.endpoint import serve_telemetry


@dataclass(frozen=True)
class StandaloneOptions:
    """Which server a service works for, how fast it may ask, and where it tells how it is."""

    client_config: ClientConfig
    permissions: ServicePermissions
    leader_elect: bool = True
    qps: float = 0.0
    metrics_address: str = ""


@dataclass(frozen=True)
class StartedService:
    """What a service that was started has to say."""

    server: str
    version: str
    metrics: str | None


async def run_standalone(
    options: StandaloneOptions,
    build_service: Callable[[Client], RunnableService],
    on_started: Callable[[StartedService], None],
) -> None:
    """Run a service until somebody interrupts; raises when it cannot begin."""
    stop = install_stop_signals()
    transport = HttpTransport(options.client_config)
    habits = ClientOptions(field_manager=f"dray-{options.permissions.service}", qps=options.qps)
    client = Client(transport, habits)
    try:
        version = await _check_server(transport, options)
        service = build_service(client)
        checks = {"informers": lambda: _check_ready(service, options)}
        async with serve_telemetry(
            service.metrics, checks, address=options.metrics_address or None
        ) as address:
            on_started(StartedService(options.client_config.server, version, address))
            await _run_until_stopped(service, stop)
    finally:
        await client.close()


def _check_ready(service: RunnableService, options: StandaloneOptions) -> str | None:
    """Why a service is not ready; one that may be standing by is as ready as it should be."""
    return None if service.ready.is_set() or options.leader_elect else "still reading what there is"


async def _check_server(transport: Transport, options: StandaloneOptions) -> str:
    """The version of the server; raises when there is no use in beginning."""
    caller = RestClient(
        transport, ClientOptions(field_manager=f"dray-{options.permissions.service}", max_attempts=2)
    )
    try:
        reply = await caller.call(TransportRequest("GET", "/version"), timeout=10.0)
        await check_permissions(caller, options.permissions, leader_elect=options.leader_elect)
    except ServerUnreachableError as silent:
        raise InputError(
            f"{silent}; is the server that `{options.client_config.source}` names running?"
        ) from None
    except UnauthorizedError:
        raise InputError(
            f"{options.client_config.server} does not accept the credentials in "
            f"`{options.client_config.source}`"
        ) from None
    return _parse_version(reply.body)


def _parse_version(body: bytes) -> str:
    from dray.api.json_text import read_json

    document = read_json(body)
    return str(document.get("gitVersion") or "") if isinstance(document, dict) else ""


async def _run_until_stopped(service: RunnableService, stop: asyncio.Event) -> None:
    """Run a service until it ends or somebody wants it to."""
    freezing = asyncio.create_task(_freeze_when_ready(service))
    try:
        await wait_for_first(service.run(), stop.wait())
    finally:
        await cancel_and_wait(freezing)


async def _freeze_when_ready(service: RunnableService) -> None:
    await service.ready.wait()
    freeze_garbage_collector()
