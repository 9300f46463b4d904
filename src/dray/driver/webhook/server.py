"""An admission webhook: refuses parameters that the driver would not understand, when objects are created.

    async with answering(Checks("gpu.example.com", Settings), Listening("0.0.0.0:8443", cert, key)):
        ...

API servers ask over HTTPS and believe the certificate that their configuration names. It is read again when
its files change, as those who issue certificates replace them. Plain HTTP is for tests and must be asked for.

Rules for this file: every request gets an answer in words. What is wrong with a request is 4xx, what is wrong
with us is 500 without a traceback, and the log has the rest.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from dray.api.json_text import write_json
from dray.driver.webhook.reviews import Checks, NotAReview, reviewed
from dray.errors import InputError
from dray.telemetry.endpoint import unbound
from dray.telemetry.logs import Log, silent

PATH: Final = "/validate"
LARGEST: Final = 3 * 1024 * 1024 + 64 * 1024
"""Bytes of a review: the largest object there can be, and what is around it."""
BODY_SECONDS: Final = 10.0
"""How long a body may take; API servers wait no longer for an answer by default."""
CERTIFICATE_SECONDS: Final = 30.0
SHUTDOWN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen, and as whom; without a certificate only when `plain` says so."""

    address: str
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False


@asynccontextmanager
async def answering(checks: Checks, where: Listening, log: Log | None = None) -> AsyncIterator[str]:
    """Answer reviews while the block lasts; the address that is listened on, as a URL."""
    told = log or silent()
    host, port = _parted(where.address)
    context = _context(where)
    runner = web.AppRunner(
        _application(checks, told), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, handle_signals=False
    )
    await runner.setup()
    renewing = asyncio.create_task(_renew(context, where, told)) if context is not None else None
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except OSError as broken:
            raise InputError(f"cannot listen on `{where.address}`: {unbound(broken)}") from broken
        found = runner.addresses[0]
        yield f"{'http' if context is None else 'https'}://{found[0]}:{found[1]}{PATH}"
    finally:
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        await runner.cleanup()


# --- answering ---


def _application(checks: Checks, log: Log) -> web.Application:
    async def review(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body did not come in time\n") from None
        try:
            answer = await reviewed(checks, body)
        except NotAReview as wrong:
            return web.Response(status=400, text=f"{wrong}\n")
        return web.Response(body=write_json(answer), content_type="application/json")

    @web.middleware
    async def in_words(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as broken:
            log.error("a review could not be answered", error=broken)
            return web.Response(status=500, text="the webhook is broken; its log says more\n")

    async def well(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    application = web.Application(middlewares=[in_words], client_max_size=LARGEST)
    application.router.add_post(PATH, review)
    for path in ("/healthz", "/livez", "/readyz"):
        application.router.add_get(path, well)
    return application


# --- certificates ---


def _context(where: Listening) -> ssl.SSLContext | None:
    if where.plain:
        return None
    if where.certificate is None or where.key is None:
        raise InputError(
            "a webhook is asked over HTTPS: give a certificate and its key, or ask for plain HTTP in a test"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, where)
    return context


def _load(context: ssl.SSLContext, where: Listening) -> None:
    try:
        context.load_cert_chain(str(where.certificate), str(where.key))
    except (OSError, ssl.SSLError) as broken:
        raise InputError(f"certificate `{where.certificate}`, key `{where.key}`: {broken}") from None


async def _renew(context: ssl.SSLContext, where: Listening, log: Log) -> None:
    """Use a new certificate for new connections when its files are replaced."""
    known = _changed_at(where)
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        now = _changed_at(where)
        if now != known:
            try:
                _load(context, where)
                known = now
            except InputError as broken:
                log.error("the new certificate cannot be used", why=str(broken))


def _changed_at(where: Listening) -> tuple[int, ...]:
    files = [file for file in (where.certificate, where.key) if file is not None]
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def _parted(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"`{address}` is no address: expected HOST:PORT, such as `0.0.0.0:8443`")
    return host.strip("[]") or "0.0.0.0", int(port)
