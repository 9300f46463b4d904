"""The API server as a process: opens the store, keys and socket, and runs the server between them.

Theory of operation: everything that can be wrong with the options is found before anything is served, in the
order in which people would fix it: directory, store, address. The kubeconfig is written when the server
responds, so that whoever waits for the file may use it at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.client.timing import TimeSource
from dray.cluster.services.certificate_renewal import ServerCertificateRenewal
from dray.cluster.services.process_setup import freeze_garbage_collector, install_stop_signals
from dray.errors import InputError
from dray.gates import GateSet
from dray.private_files import check_private_directory
from dray.server.admission.webhooks.service_addresses import ServiceAddresses
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.http.application import ApiApplication
from dray.server.http.limits import ServerLimits
from dray.server.http.listener import HttpListener, listen
from dray.server.observability.metrics import CERTIFICATE_EXPIRY, CONNECTIONS
from dray.store import Store, open_store
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry

STORE_FILE: Final = "store.db"
KEYS_DIRECTORY: Final = "keys"
AUDIT_FILE: Final = "audit.log"
KUBECONFIG_FILE: Final = "admin.kubeconfig"
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class ServerProcessOptions:
    """Options of an API server process."""

    directory: Path
    store: str = ""
    """An address; a file in the directory when empty."""
    host: str = LOOPBACK
    port: int = 6443
    keys: Path | None = None
    """The directory of keys, when servers on one store share it; otherwise inside the directory."""
    names: tuple[str, ...] = ()
    """More names and addresses that clients use for this server."""
    gates: GateSet = field(default_factory=GateSet.from_defaults)
    tokens: Path | None = None
    anonymous: bool = False
    ledger: bool = True
    limits: ServerLimits = field(default_factory=ServerLimits)
    log: StructuredLogger = field(default_factory=build_silent_logger)
    webhook_services: ServiceAddresses = field(default_factory=dict)
    """Addresses of the services behind which admission webhooks respond."""
    time_source: TimeSource = field(default_factory=TimeSource)


@dataclass(frozen=True)
class RunningServer:
    """The address and parts of a running server."""

    url: str
    kubeconfig: Path
    store: str
    app: ApiApplication
    metrics: MetricsRegistry
    authority: bytes
    """The certificate of the authority that signs those of this server and its clients."""


@asynccontextmanager
async def open_server(options: ServerProcessOptions) -> AsyncIterator[RunningServer]:
    """Run a server at its address while the block lasts."""
    prepare_directory(options.directory)
    address = options.store or str(options.directory / STORE_FILE)
    async with await open_store(address) as store:
        with listen(options.host, options.port) as sock:
            async with _run_api_server(options, store, sock) as (url, path, server, app, ca):
                yield RunningServer(url, path, address, app, server.metrics, ca)


@asynccontextmanager
async def _run_api_server(
    options: ServerProcessOptions, store: Store, sock: socket.socket
) -> AsyncIterator[tuple[str, Path, ApiServer, ApiApplication, bytes]]:
    host, port = sock.getsockname()[:2]
    names = tuple(name for name in (*options.names, host) if name not in ("0.0.0.0", "::"))
    keys = options.keys or options.directory / KEYS_DIRECTORY
    certificates = CertificateAuthority.open(keys, names, options.time_source.clock)
    url = f"https://{_format_url_host(host)}:{port}"
    server_options = ApiServerOptions(
        FeatureGateFilter(options.gates),
        keys,
        options.directory / AUDIT_FILE,
        options.log,
        url,
        certificates.ca_pem.decode(),
        options.tokens,
        options.anonymous,
        options.ledger,
        options.limits,
        options.time_source.clock,
        webhook_services=options.webhook_services,
    )
    server = ApiServer(store, server_options)
    async with server.run() as app:
        path = options.directory / KUBECONFIG_FILE
        renewal = ServerCertificateRenewal(certificates, (path, url), options.time_source, options.log)
        listener = HttpListener(app, sock, renewal.tls, options.limits, server.count_refusal)
        server.metrics.add_callback(CONNECTIONS, lambda: [((), listener.connections)])
        server.metrics.add_callback(CERTIFICATE_EXPIRY, partial(_list_expiry_times, renewal, server))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run_until_stopped())
            renewing = tasks.create_task(renewal.run())
            try:
                renewal.write_kubeconfig()
                yield url, path, server, app, certificates.ca_pem
            finally:
                renewing.cancel()
                server.end_watches()
                listener.stop()


def _list_expiry_times(
    renewal: ServerCertificateRenewal, server: ApiServer
) -> list[tuple[tuple[str, ...], float]]:
    times = renewal.read_expiry_times()
    if server.pod_logs.certificate_expiry is not None:
        times["log-client"] = server.pod_logs.certificate_expiry
    return [((name,), when.timestamp()) for name, when in times.items()]


async def serve(options: ServerProcessOptions, on_started: Callable[[RunningServer], None]) -> None:
    """Serve until interrupted."""
    stop = install_stop_signals()
    async with open_server(options) as running:
        freeze_garbage_collector()
        on_started(running)
        await stop.wait()


def prepare_directory(directory: Path) -> None:
    """Create the directory of a server's data; an obstacle is an `InputError`, and so is a directory that
    another user owns or can write.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as refused:
        raise InputError(
            f"cannot use `{directory}` as data directory: {(refused.strerror or str(refused)).lower()}; "
            "choose another with --data-dir"
        ) from None
    check_private_directory(directory)


def _format_url_host(host: str) -> str:
    """Return the host part of a URL at which a client on this machine reaches the server."""
    if host in ("0.0.0.0", "::"):
        return LOOPBACK
    return f"[{host}]" if ":" in host else host
