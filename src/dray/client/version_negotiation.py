"""Which version of a kind the server speaks: ours, or an older one that we can convert.

Kinds with one version need no question. For the others the server is asked once, version by version from the
newest, and the answer is remembered until the server says that it does not know the path any more: it may
have been upgraded or downgraded under our feet.
"""

from __future__ import annotations

import asyncio

from dray.api.json_text import read_json
from dray.api.kinds import Kind
from dray.api.strategies.gated_fields import gates_before
from dray.client.errors import NotFound, NotServed
from dray.client.rest_client import Caller
from dray.client.transport import Request


class Served:
    """What one server speaks."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._known: dict[Kind, str] = {}
        self._one_at_a_time = asyncio.Lock()

    async def version(self, kind: Kind) -> str:
        """The newest version of the kind that the server and we both speak."""
        if len(kind.versions) == 1:
            return kind.version
        if kind not in self._known:
            async with self._one_at_a_time:
                if kind not in self._known:
                    self._known[kind] = await self._ask(kind)
        return self._known[kind]

    async def serves(self, kind: Kind) -> bool:
        """Whether the server has the kind; asked anew each time."""
        return await self._serves(kind, await self.version(kind))

    def forget(self, kind: Kind) -> None:
        """Ask again next time."""
        self._known.pop(kind, None)

    async def _ask(self, kind: Kind) -> str:
        for version in kind.versions:
            if await self._serves(kind, version):
                return version
        versions = ", ".join(f"`{kind.api_version(version)}`" for version in kind.versions)
        raise NotServed(
            f"the server at `{self._caller.transport.address}` serves {kind.plural} in none of {versions}; "
            f"{_what_helps(kind)}"
        )

    async def _serves(self, kind: Kind, version: str) -> bool:
        path = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        try:
            reply = await self._caller.call(Request("GET", path))
        except NotFound:
            return False
        document = read_json(reply.body)
        resources = document.get("resources") if isinstance(document, dict) else None
        return any(isinstance(row, dict) and row.get("name") == kind.plural for row in resources or ())


def _what_helps(kind: Kind) -> str:
    gates = " and ".join(f"`{gate}`" for gate in gates_before(kind))
    return f"expected Kubernetes 1.32 or newer, or dray, with feature gate {gates} on"
