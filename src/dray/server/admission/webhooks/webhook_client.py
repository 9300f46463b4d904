"""Calls to webhooks: over TLS, with an end to time, size and number.

Theory of operation: connections are kept and used again. A webhook has the time that its configuration gives
it, for connection and answer together, and its answer an end. So many requests wait for one webhook at a
time; when it hangs, those beyond are not kept waiting, so that it cannot take all places of the server. What
went wrong is a `Trouble` with a sentence; nothing is raised.

The HTTP library is loaded with the first call: a server whose webhooks nobody configured does without it.

Rules for this file: no body is logged or repeated, and no redirect followed.
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
from dray.server.admission.webhooks.active_webhooks import Hook
from dray.server.admission.webhooks.service_addresses import Addresses, unknown
from dray.values.cache_bounds import Bound

if TYPE_CHECKING:
    import aiohttp

LARGEST_ANSWER: Final = 8 << 20
"""Bytes: a patch may hold the largest object there is, in base64."""
WAITING: Final = 64
"""So many requests wait for one webhook at a time."""
_CONNECTIONS: Final = 64
CONTEXTS: Final = Bound("authorities of webhooks", 128, "the server")
_SHOWN: Final = 300


class Trouble(msgspec.Struct, frozen=True):
    """Why a webhook did not answer."""

    why: str


class _Place(msgspec.Struct, frozen=True):
    """Where to ask: the address, whom the certificate must name, and what the host is called."""

    url: str
    shown: str
    server_name: str = ""


class Caller:
    """Asks webhooks."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, str], ssl.SSLContext] = {}
        self._waiting: dict[tuple[str, str, str], int] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, hook: Hook, body: bytes, seconds: float) -> bytes | Trouble:
        """The answer of a webhook to a review."""
        place = self._place(hook.webhook.client_config)
        if isinstance(place, Trouble):
            return place
        key = (hook.sort, hook.configuration, hook.name)
        waiting = self._waiting.get(key, 0)
        if waiting >= WAITING:
            return Trouble(f"{waiting} requests wait for {place.shown} already")
        self._waiting[key] = waiting + 1
        try:
            return await self._called(hook, place, body, seconds)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]

    async def _called(self, hook: Hook, place: _Place, body: bytes, seconds: float) -> bytes | Trouble:
        if self._session is None:
            # That takes a good part of a second, the first time; others need not wait for it.
            await asyncio.to_thread(importlib.import_module, "aiohttp")
        import aiohttp

        try:
            async with asyncio.timeout(seconds):
                context = await self._context(hook.webhook.client_config.ca_bundle, place.server_name)
                if isinstance(context, Trouble):
                    return context
                try:
                    return await self._posted(place, context, body, seconds)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    # A connection that was kept may have been closed at the other end; nothing was said.
                    return await self._posted(place, context, body, seconds)
        except TimeoutError:
            return Trouble(f"no answer from {place.shown} within {seconds:g} seconds")
        except aiohttp.ClientConnectorCertificateError as wrong:
            return Trouble(f"{place.shown} shows a certificate that is not trusted: {_plain(wrong)}")
        except (aiohttp.ClientError, OSError, ValueError) as broken:
            return Trouble(f"{place.shown} cannot be asked: {_plain(broken)}")

    async def _posted(
        self, place: _Place, context: ssl.SSLContext, body: bytes, seconds: float
    ) -> bytes | Trouble:
        session = self._opened()
        async with session.post(
            f"{place.url}?timeout={max(1, int(seconds))}s",
            data=io.BytesIO(body),  # sent in pieces, so that a large one holds nobody up
            ssl=context,
            server_hostname=place.server_name or None,
            headers={"host": place.server_name} if place.server_name else None,
            allow_redirects=False,
        ) as response:
            answer = bytearray()
            async for part in response.content.iter_any():
                answer += part
                if len(answer) > LARGEST_ANSWER:
                    response.close()
                    return Trouble(f"{place.shown} answers more than {LARGEST_ANSWER} bytes")
            if response.status != 200:
                return Trouble(
                    f"{place.shown} answers {response.status}: {_words(bytes(answer)) or 'nothing'}"
                )
            return bytes(answer)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=_CONNECTIONS),
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

    def _place(self, client: WebhookClientConfig) -> _Place | Trouble:
        if client.service is None:
            url = client.url or ""
            if not url.startswith("https://"):
                return Trouble("its address is not one of https")
            return _Place(url, url)
        service = client.service
        address = self._addresses.get((service.namespace, service.name))
        if address is None:
            return Trouble(unknown(service))
        path = "/" + (service.path or "").lstrip("/")
        name = f"{service.name}.{service.namespace}.svc"
        return _Place(f"https://{address}{path}", f"service {name} at {address}", name)

    async def _context(self, bundle: str, server_name: str) -> ssl.SSLContext | Trouble:
        """Whom to trust. One for each name: connections are told apart by it."""
        key = (bundle, server_name)
        if key not in self._contexts:
            try:
                context = await asyncio.to_thread(_trusting, bundle)
            except (ssl.SSLError, ValueError) as broken:
                return Trouble(f"its caBundle holds no certificates that can be read: {_plain(broken)}")
            return CONTEXTS.keep(self._contexts, key, self._contexts.get(key, context))
        return self._contexts[key]


def _trusting(bundle: str) -> ssl.SSLContext:
    """A context that believes the certificates of a bundle, or those of the system without one."""
    text = base64.b64decode(bundle, validate=True).decode("ascii")
    context = ssl.create_default_context(cadata=text) if text.strip() else ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _plain(broken: BaseException) -> str:
    """What went wrong, without addresses and classes of libraries."""
    cause = getattr(broken, "certificate_error", None) or getattr(broken, "os_error", None) or broken
    number = getattr(cause, "errno", None) or 0
    known = os.strerror(number) if number > 0 and not isinstance(cause, ssl.SSLError) else ""
    text = getattr(cause, "verify_message", "") or known or getattr(cause, "strerror", "") or str(cause)
    return " ".join(str(text).split())[:_SHOWN].lower() or type(broken).__name__


def _words(answer: bytes) -> str:
    text = answer[:_SHOWN].decode("utf-8", "replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
