"""HTTP endpoint for metrics and health of processes that are not the API server.

It serves no secrets and changes nothing, so it takes no credentials. It is off unless an address is given;
the address should be one that only probes and Prometheus reach.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from dray.errors import InputError
from dray.telemetry.health import HEALTH_PATHS, HealthCheck, run_health_checks
from dray.telemetry.metrics import MetricsRegistry

SHUTDOWN_SECONDS = 1.0


@asynccontextmanager
async def serve_telemetry(
    metrics: MetricsRegistry, checks: Mapping[str, HealthCheck], *, address: str | None = None
) -> AsyncIterator[str | None]:
    """Serve `/metrics` and the health paths at `address` (HOST:PORT) while the context is open.

    Yields the address, with the real port where `0` was requested; None when the endpoint is off.
    """
    if not address:
        yield None
        return
    host, port = _parse_address(address)
    runner = web.AppRunner(
        _build_application(metrics, checks),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        handle_signals=False,
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as broken:
            raise InputError(f"cannot listen on `{address}`: {explain_bind_error(broken)}") from broken
        yield _format_address(runner.addresses[0])
    finally:
        await runner.cleanup()


def _build_application(metrics: MetricsRegistry, checks: Mapping[str, HealthCheck]) -> web.Application:
    application = web.Application()
    application.router.add_get("/metrics", partial(_serve_metrics, metrics))
    for path in HEALTH_PATHS:
        application.router.add_get(path, partial(_serve_health, checks))
        application.router.add_get(path + "/{check}", partial(_serve_health, checks))
    return application


async def _serve_metrics(metrics: MetricsRegistry, _request: web.Request) -> web.Response:
    return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _serve_health(checks: Mapping[str, HealthCheck], request: web.Request) -> web.Response:
    health = run_health_checks(request.path, checks, verbose="verbose" in request.query)
    if health is None:
        raise web.HTTPNotFound
    return web.Response(status=200 if health.passed else 500, text=health.text)


def _parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"`{address}` is no address: expected HOST:PORT, such as `127.0.0.1:10259`")
    return host.strip("[]") or "0.0.0.0", int(port)


def explain_bind_error(error: OSError) -> str:
    """Explain why an address cannot be bound, without repeating the address, which asyncio adds."""
    return (error.strerror or str(error)).rpartition(": ")[2].lower()


def _format_address(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
