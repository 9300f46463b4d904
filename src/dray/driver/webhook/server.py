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
from dray.driver.webhook.reviews import NotAdmissionReviewError, ParameterReviewConfig, review_admission
from dray.errors import InputError
from dray.telemetry.endpoint import explain_bind_error
from dray.telemetry.logs import StructuredLogger, build_silent_logger

PATH: Final = "/validate"
MAX_BODY_BYTES: Final = 3 * 1024 * 1024 + 64 * 1024
"""Bytes of a review: the largest object there can be, and what is around it."""
BODY_TIMEOUT_SECONDS: Final = 10.0
"""How long a body may take; API servers wait no longer for an answer by default."""
CERTIFICATE_POLL_SECONDS: Final = 30.0
SHUTDOWN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WebhookListenOptions:
    """Where to listen, and as whom; without a certificate only when `plain` says so."""

    address: str
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False


@asynccontextmanager
async def serve_webhook(
    config: ParameterReviewConfig, options: WebhookListenOptions, log: StructuredLogger | None = None
) -> AsyncIterator[str]:
    """Answer reviews while the block lasts; the address that is listened on, as a URL."""
    told = log or build_silent_logger()
    host, port = _parse_address(options.address)
    context = _build_tls_context(options)
    runner = web.AppRunner(
        _build_application(config, told),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        handle_signals=False,
    )
    await runner.setup()
    renewing = (
        asyncio.create_task(_reload_certificate(context, options, told)) if context is not None else None
    )
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except OSError as broken:
            raise InputError(
                f"cannot listen on `{options.address}`: {explain_bind_error(broken)}"
            ) from broken
        found = runner.addresses[0]
        yield f"{'http' if context is None else 'https'}://{found[0]}:{found[1]}{PATH}"
    finally:
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        await runner.cleanup()


# --- answering ---


def _build_application(config: ParameterReviewConfig, log: StructuredLogger) -> web.Application:
    async def review(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
                body = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body did not come in time\n") from None
        try:
            answer = await review_admission(config, body)
        except NotAdmissionReviewError as wrong:
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

    application = web.Application(middlewares=[in_words], client_max_size=MAX_BODY_BYTES)
    application.router.add_post(PATH, review)
    for path in ("/healthz", "/livez", "/readyz"):
        application.router.add_get(path, well)
    return application


# --- certificates ---


def _build_tls_context(options: WebhookListenOptions) -> ssl.SSLContext | None:
    if options.plain:
        return None
    if options.certificate is None or options.key is None:
        raise InputError(
            "a webhook is asked over HTTPS: give a certificate and its key, or ask for plain HTTP in a test"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, options)
    return context


def _load_certificate(context: ssl.SSLContext, options: WebhookListenOptions) -> None:
    try:
        context.load_cert_chain(str(options.certificate), str(options.key))
    except (OSError, ssl.SSLError) as broken:
        raise InputError(f"certificate `{options.certificate}`, key `{options.key}`: {broken}") from None


async def _reload_certificate(
    context: ssl.SSLContext, options: WebhookListenOptions, log: StructuredLogger
) -> None:
    """Use a new certificate for new connections when its files are replaced."""
    known = _read_mtimes(options)
    while True:
        await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
        now = _read_mtimes(options)
        if now != known:
            try:
                _load_certificate(context, options)
                known = now
            except InputError as broken:
                log.error("the new certificate cannot be used", why=str(broken))


def _read_mtimes(options: WebhookListenOptions) -> tuple[int, ...]:
    files = [file for file in (options.certificate, options.key) if file is not None]
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def _parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"`{address}` is no address: expected HOST:PORT, such as `0.0.0.0:8443`")
    return host.strip("[]") or "0.0.0.0", int(port)
