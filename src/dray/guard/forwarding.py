"""Forwarding of reviews from a guard that does not lead to the one that does."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import aiohttp

from dray.errors import DrayError
from dray.guard.tls_secret import AUTHORITIES_FILE

FORWARDED_PATH: Final = "/forwarded"
"""Where a leader takes reviews from other guards; they are never forwarded again."""
FORWARD_SECONDS: Final = 4.0


class LeaderUnreachableError(DrayError):
    """The guard that leads does not answer."""


def format_leader_identity(identity: str, address: str) -> str:
    """The identity in the lease: it says where the leader is reached."""
    return f"{identity}@{address}"


def parse_leader_address(identity: str) -> str:
    """The address in the identity of a leader; empty when there is none."""
    return identity.rpartition("@")[2] if "@" in identity else ""


class ReviewForwarder:
    """Connections to the leader; it has to show a certificate of the guards' own authority."""

    def __init__(self, directory: Path, server_name: str) -> None:
        self._authorities = directory / AUTHORITIES_FILE
        self._server_name = server_name
        self._session: aiohttp.ClientSession | None = None
        self._context: tuple[int, ssl.SSLContext] | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(self, address: str, body: bytes) -> bytes:
        """Return the answer of the leader."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.post(
                f"https://{address}{FORWARDED_PATH}",
                data=body,
                ssl=self._build_context(),
                server_hostname=self._server_name,
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(FORWARD_SECONDS),
            ) as reply:
                content = await reply.read()
                if reply.status != 200:
                    raise LeaderUnreachableError(f"the guard that leads, at {address}, sends {reply.status}")
                return content
        except (aiohttp.ClientError, OSError, TimeoutError) as failed:
            why = str(failed) or type(failed).__name__
            raise LeaderUnreachableError(
                f"the guard that leads, at {address}, does not answer: {why}"
            ) from None

    def _build_context(self) -> ssl.SSLContext:
        """The context with the current authorities."""
        modified = self._authorities.stat().st_mtime_ns
        if self._context is None or self._context[0] != modified:
            self._context = modified, ssl.create_default_context(cafile=str(self._authorities))
        return self._context[1]
