"""Version negotiation: the version of a kind that the server serves, ours or an older one that we can
convert.

Kinds with one version need no request. For the others the server is asked once, version by version from the
newest, and the result is kept until the server does not know the path any more: it may have been upgraded or
downgraded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from dray.api.json_text import read_json
from dray.api.kinds import Kind
from dray.api.strategies.gated_fields import list_required_gates
from dray.client.errors import KindNotServedError, NotFoundError
from dray.client.rest_client import CALL_ERRORS, ClientOptions, RestClient
from dray.client.timing import Backoff
from dray.client.transport import TransportRequest


class KindClient(Protocol):
    """A client that knows which kinds its server serves; `Client` is one."""

    @property
    def options(self) -> ClientOptions: ...

    async def serves(self, kind: Kind | type[msgspec.Struct]) -> bool: ...


class VersionNegotiator:
    """The versions that one server serves."""

    def __init__(self, rest_client: RestClient) -> None:
        self._rest_client = rest_client
        self._versions: dict[Kind, str] = {}
        self._lock = asyncio.Lock()

    async def get_version(self, kind: Kind) -> str:
        """Return the newest version of the kind that both the server and we support."""
        if len(kind.versions) == 1:
            return kind.version
        if kind not in self._versions:
            async with self._lock:
                if kind not in self._versions:
                    self._versions[kind] = await self._negotiate(kind)
        return self._versions[kind]

    async def serves(self, kind: Kind) -> bool:
        """Whether the server serves the kind; asked anew each time."""
        return await self._is_version_served(kind, await self.get_version(kind))

    def forget(self, kind: Kind) -> None:
        """Negotiate again next time."""
        self._versions.pop(kind, None)

    async def _negotiate(self, kind: Kind) -> str:
        for version in kind.versions:
            if await self._is_version_served(kind, version):
                return version
        versions = ", ".join(f"`{kind.format_api_version(version)}`" for version in kind.versions)
        raise KindNotServedError(
            f"the server at `{self._rest_client.transport.address}` serves {kind.plural} in "
            f"none of {versions}; "
            f"{_suggest_fix(kind)}"
        )

    async def _is_version_served(self, kind: Kind, version: str) -> bool:
        path = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        try:
            reply = await self._rest_client.call(TransportRequest("GET", path))
        except NotFoundError:
            return False
        document = read_json(reply.body)
        resources = document.get("resources") if isinstance(document, dict) else None
        return any(isinstance(row, dict) and row.get("name") == kind.plural for row in resources or ())


def _suggest_fix(kind: Kind) -> str:
    gates = " and ".join(f"`{gate}`" for gate in list_required_gates(kind))
    return f"expected Kubernetes 1.32 or newer, or dray, with feature gate {gates} on"


async def find_out_if_served(
    client: KindClient, kind: Kind | type[msgspec.Struct], on_failure: Callable[[Exception], None]
) -> bool:
    """Whether the server serves a kind, for the start of a service: it is asked again until it answers."""
    backoff = Backoff(client.options.time_source)
    while True:
        try:
            return await client.serves(kind)
        except CALL_ERRORS as failed:
            on_failure(failed)
            await backoff.wait()
