"""The HTTPS server of admission webhooks: takes reviews, and answers with what a handler decides.

API servers call over HTTPS and trust the certificate that the webhook configuration names. The server loads
it again when its files change, since issuers replace them. Plain HTTP is for tests and has to be enabled.

Rules for this file: every response has a readable body. An invalid request is 4xx; an error of the webhook is
500 without a traceback, which goes to the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from dray.errors import InputError
from dray.tasks import cancel_and_wait
from dray.telemetry.endpoint import explain_bind_error
from dray.telemetry.logs import StructuredLogger, build_silent_logger

VALIDATE_PATH: Final = "/validate"
MAX_BODY_BYTES: Final = 3 * 1024 * 1024 + 64 * 1024
"""The largest body: the largest object that a server stores, and the review around it."""
BODY_TIMEOUT_SECONDS: Final = 10.0
"""How long a body may take; by default API servers wait no longer for a response."""
CERTIFICATE_POLL_SECONDS: Final = 30.0
SHUTDOWN_SECONDS: Final = 1.0

AnswerReview = Callable[[bytes], Awaitable[bytes]]
"""Returns the answer to the body of a review, both JSON; raises `InputError` for a body that is no review."""


@dataclass(frozen=True, slots=True)
class WebhookListenOptions:
    """Where to listen, and with which certificate; none is needed when `plain` is set."""

    address: str
    certificate: Path | None = None
    key: Path | None = None
    plain: bool = False


@asynccontextmanager
async def serve_reviews(
    answers: Mapping[str, AnswerReview], options: WebhookListenOptions, log: StructuredLogger | None = None
) -> AsyncIterator[str]:
    """Serve reviews by path while the context is open; yields the URL of the server."""
    log = log or build_silent_logger()
    host, port = _parse_address(options.address)
    context = _build_tls_context(options)
    runner = web.AppRunner(
        _build_application(answers, log),
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        handle_signals=False,
    )
    await runner.setup()
    reloading = (
        asyncio.create_task(_reload_certificate(context, options, log)) if context is not None else None
    )
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
        except OSError as broken:
            raise InputError(
                f"cannot listen on `{options.address}`: {explain_bind_error(broken)}"
            ) from broken
        bound_host, bound_port = runner.addresses[0][:2]
        yield f"{'http' if context is None else 'https'}://{bound_host}:{bound_port}"
    finally:
        if reloading is not None:
            await cancel_and_wait(reloading)
        await runner.cleanup()


# --- requests ---


def _build_application(answers: Mapping[str, AnswerReview], log: StructuredLogger) -> web.Application:
    async def review(answer: AnswerReview, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
                body = await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body did not come in time\n") from None
        try:
            return web.Response(body=await answer(body), content_type="application/json")
        except InputError as wrong:
            return web.Response(status=400, text=f"{wrong}\n")

    @web.middleware
    async def handle_errors(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as broken:
            log.error("a review could not be answered", error=broken)
            return web.Response(status=500, text="the webhook failed; its log has the error\n")

    async def answer_healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    application = web.Application(middlewares=[handle_errors], client_max_size=MAX_BODY_BYTES)
    for path, answer in answers.items():
        application.router.add_post(path, partial(review, answer))
    for path in ("/healthz", "/livez", "/readyz"):
        application.router.add_get(path, answer_healthz)
    return application


# --- certificates ---


def _build_tls_context(options: WebhookListenOptions) -> ssl.SSLContext | None:
    if options.plain:
        return None
    if options.certificate is None or options.key is None:
        raise InputError(
            "API servers call a webhook over HTTPS: give a certificate and its key, or enable plain HTTP"
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
    loaded = _read_mtimes(options)
    while True:
        await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
        current = _read_mtimes(options)
        if current != loaded:
            try:
                _load_certificate(context, options)
                loaded = current
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
