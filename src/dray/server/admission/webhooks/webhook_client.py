"""The HTTP client of webhooks: TLS, with limits on time, size and number of calls.

Theory of operation: connections are reused. A webhook has the time-out of its configuration for connection
and response together, and its response a maximum size. Only so many requests wait for one webhook at a time;
when it hangs, further ones fail at once, so that it cannot occupy the whole server. Errors are returned as a
`WebhookFailure` with a message; nothing is raised.

The HTTP library is imported with the first call: a server without webhooks does not need it. No body is
logged or repeated, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import io
import os
import ssl
from typing import TYPE_CHECKING, Final

import msgspec

from dray.api.admission.webhook_configuration import WebhookClientConfig
from dray.server.admission.webhooks.active_webhooks import ActiveWebhook
from dray.server.admission.webhooks.service_addresses import ServiceAddresses, explain_unknown_service
from dray.values.cache_bounds import CacheBound

if TYPE_CHECKING:
    import aiohttp

MAX_RESPONSE_BYTES: Final = 8 << 20
"""Bytes: a patch may contain the largest object there is, in base64."""
MAX_PENDING_CALLS: Final = 64
"""How many requests wait for one webhook at a time."""
_MAX_CONNECTIONS: Final = 64
CONTEXT_CACHE: Final = CacheBound("authorities of webhooks", 128, "the server")
_MAX_SHOWN: Final = 300


class WebhookFailure(msgspec.Struct, frozen=True):
    """Why a webhook did not answer."""

    reason: str


class _WebhookEndpoint(msgspec.Struct, frozen=True):
    """The address, the name its certificate must have, and the name for messages."""

    url: str
    display_name: str
    server_name: str = ""


class WebhookClient:
    """Calls webhooks."""

    def __init__(self, addresses: ServiceAddresses) -> None:
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, str], ssl.SSLContext] = {}
        self._pending_calls: dict[tuple[str, str, str], int] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, hook: ActiveWebhook, body: bytes, timeout: float) -> bytes | WebhookFailure:
        """Return the answer of a webhook to a review."""
        place = self._resolve_endpoint(hook.webhook.client_config)
        if isinstance(place, WebhookFailure):
            return place
        key = (hook.admission_type, hook.configuration, hook.name)
        waiting = self._pending_calls.get(key, 0)
        if waiting >= MAX_PENDING_CALLS:
            return WebhookFailure(f"{waiting} requests wait for {place.display_name} already")
        self._pending_calls[key] = waiting + 1
        try:
            return await self._call_endpoint(hook, place, body, timeout)
        finally:
            self._pending_calls[key] -= 1
            if not self._pending_calls[key]:
                del self._pending_calls[key]

    async def _call_endpoint(
        self, hook: ActiveWebhook, endpoint: _WebhookEndpoint, body: bytes, timeout: float
    ) -> bytes | WebhookFailure:
        if self._session is None:
            # The first import takes a good part of a second; others need not wait for it.
            await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        try:
            async with asyncio.timeout(timeout):
                context = await self._get_ssl_context(
                    hook.webhook.client_config.ca_bundle, endpoint.server_name
                )
                if isinstance(context, WebhookFailure):
                    return context
                try:
                    return await self._post_review(endpoint, context, body, timeout)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    # The other end may have closed a reused connection; nothing was sent.
                    return await self._post_review(endpoint, context, body, timeout)
        except TimeoutError:
            return WebhookFailure(f"no answer from {endpoint.display_name} within {timeout:g} seconds")
        except aiohttp.ClientConnectorCertificateError as wrong:
            return WebhookFailure(
                f"{endpoint.display_name} shows a certificate that is not trusted: {_describe_error(wrong)}"
            )
        except (aiohttp.ClientError, OSError, ValueError) as broken:
            return WebhookFailure(f"{endpoint.display_name} cannot be asked: {_describe_error(broken)}")

    async def _post_review(
        self, endpoint: _WebhookEndpoint, context: ssl.SSLContext, body: bytes, timeout: float
    ) -> bytes | WebhookFailure:
        session = self._get_session()
        async with session.post(
            f"{endpoint.url}?timeout={max(1, int(timeout))}s",
            data=io.BytesIO(body),  # sent in chunks, so that a large one blocks nobody
            ssl=context,
            server_hostname=endpoint.server_name or None,
            headers={"host": endpoint.server_name} if endpoint.server_name else None,
            allow_redirects=False,
        ) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > MAX_RESPONSE_BYTES:
                    response.close()
                    return WebhookFailure(
                        f"{endpoint.display_name} answers more than {MAX_RESPONSE_BYTES} bytes"
                    )
            if response.status != 200:
                return WebhookFailure(
                    f"{endpoint.display_name} answers {response.status}: "
                    f"{_extract_text(bytes(answer)) or 'nothing'}"
                )
            return bytes(answer)

    def _get_session(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=_MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),
                headers={
                    "accept": "application/json",
                    "accept-encoding": "identity",
                    "content-type": "application/json",
                    "user-agent": "dray-apiserver",
                },
            )
        return self._session

    def _resolve_endpoint(self, client: WebhookClientConfig) -> _WebhookEndpoint | WebhookFailure:
        if client.service is None:
            url = client.url or ""
            if not url.startswith("https://"):
                return WebhookFailure("its address is not one of https")
            return _WebhookEndpoint(url, url)
        service = client.service
        address = self._addresses.get((service.namespace, service.name))
        if address is None:
            return WebhookFailure(explain_unknown_service(service))
        path = "/" + (service.path or "").lstrip("/")
        name = f"{service.name}.{service.namespace}.svc"
        return _WebhookEndpoint(f"https://{address}{path}", f"service {name} at {address}", name)

    async def _get_ssl_context(self, bundle: str, server_name: str) -> ssl.SSLContext | WebhookFailure:
        """Return the TLS context; one for each name, because connections are pooled by it."""
        key = (bundle, server_name)
        if key not in self._contexts:
            try:
                context = await asyncio.to_thread(_build_ssl_context, bundle)
            except (ssl.SSLError, ValueError) as broken:
                return WebhookFailure(
                    f"its caBundle holds no certificates that can be read: {_describe_error(broken)}"
                )
            return CONTEXT_CACHE.put(self._contexts, key, self._contexts.get(key, context))
        return self._contexts[key]


def _build_ssl_context(bundle: str) -> ssl.SSLContext:
    """Build a context that trusts the certificates of a bundle, or those of the system without one."""
    text = base64.b64decode(bundle, validate=True).decode("ascii")
    context = ssl.create_default_context(cadata=text) if text.strip() else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _describe_error(broken: BaseException) -> str:
    """Describe an error without addresses and class names of libraries."""
    cause = getattr(broken, "certificate_error", None) or getattr(broken, "os_error", None) or broken
    number = getattr(cause, "errno", None) or 0
    known = os.strerror(number) if number > 0 and not isinstance(cause, ssl.SSLError) else ""
    text = getattr(cause, "verify_message", "") or known or getattr(cause, "strerror", "") or str(cause)
    return " ".join(str(text).split())[:_MAX_SHOWN].lower() or type(broken).__name__


def _extract_text(answer: bytes) -> str:
    text = answer[:_MAX_SHOWN].decode("utf-8", "replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
