"""Runs the scheduler, the controllers, the guard or a node agent as a process of its own, beside any
Kubernetes API server.

Theory of operation: what would keep the service from ever working is found before it starts and reported in a
line: a server that does not respond, credentials it does not accept, missing permissions. Afterwards the
service waits for a server that goes away, and for leadership that another process has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from dray.client.certificate_renewal import renew_while_open
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
from dray.telemetry.logs import StructuredLogger, build_silent_logger


@dataclass(frozen=True)
class StandaloneOptions:
    """The server a service works for, its rate limit, and the address of its metrics."""

    client_config: ClientConfig
    permissions: ServicePermissions
    leader_elect: bool = True
    qps: float = 0.0
    metrics_address: str = ""
    standby_ready: bool = True
    """Whether a service that does not lead counts as ready; otherwise it says so itself."""
    log: StructuredLogger = field(default_factory=build_silent_logger)


@dataclass(frozen=True)
class StartedService:
    """The server, its version and the metrics address of a started service."""

    server: str
    version: str
    metrics: str | None


async def run_standalone(
    options: StandaloneOptions,
    build_service: Callable[[Client], RunnableService],
    on_started: Callable[[StartedService], None],
) -> None:
    """Run a service until interrupted; raise when it cannot start."""
    stop = install_stop_signals()
    transport = HttpTransport(options.client_config)
    client_options = ClientOptions(field_manager=f"dray-{options.permissions.service}", qps=options.qps)
    client = Client(transport, client_options)
    try:
        version = await _check_server(transport, options)
        service = build_service(client)
        provider = options.client_config.credential_provider
        checks = {"informers": lambda: _check_ready(service, options)}
        address = options.metrics_address or None
        async with (
            renew_while_open(client, provider, options.log, service.metrics),
            serve_telemetry(service.metrics, checks, address=address) as served_address,
        ):
            on_started(StartedService(options.client_config.server, version, served_address))
            await _run_until_stopped(service, stop)
    finally:
        await client.close()


def _check_ready(service: RunnableService, options: StandaloneOptions) -> str | None:
    """Return why a service is not ready; one that may be on standby counts as ready."""
    may_be_on_standby = options.leader_elect and options.standby_ready
    return None if service.ready.is_set() or may_be_on_standby else "the informers are not synced yet"


async def _check_server(transport: Transport, options: StandaloneOptions) -> str:
    """Return the version of the server; raise when the service cannot work with it."""
    rest_client = RestClient(
        transport, ClientOptions(field_manager=f"dray-{options.permissions.service}", max_attempts=2)
    )
    try:
        reply = await rest_client.call(TransportRequest("GET", "/version"), timeout=10.0)
        await check_permissions(rest_client, options.permissions, leader_elect=options.leader_elect)
    except ServerUnreachableError as unreachable:
        raise InputError(
            f"{unreachable}; is the server that `{options.client_config.source}` names running?"
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
    """Run a service until it ends or is asked to stop."""
    freeze_task = asyncio.create_task(_freeze_when_ready(service))
    try:
        await wait_for_first(service.run(), stop.wait())
    finally:
        await cancel_and_wait(freeze_task)


async def _freeze_when_ready(service: RunnableService) -> None:
    await service.ready.wait()
    freeze_garbage_collector()
