"""Requests as writers send them: plain JSON over HTTP, an answer of the server is never an exception."""

from __future__ import annotations

from typing import Any

from dray.api.json_text import read_json, write_json
from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import ServerUnreachableError
from dray.client.transport import TransportRequest
from dray.client.transports.http import HttpTransport

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PREPARATIONS = "/apis/dray.dev/v1alpha1/preparations"
MERGE = "application/merge-patch+json"


class Api:
    """One way to the server."""

    def __init__(self, kubeconfig: str) -> None:
        self.transport = HttpTransport(load_client_config(kubeconfig))

    async def send(
        self, method: str, path: str, document: Any = None, content: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        """Code and document; code 0 when nobody answers."""
        body = b"" if document is None else write_json(document)
        try:
            reply = await self.transport.request(TransportRequest(method, path, query, body, content))
        except ServerUnreachableError:
            return 0, {}
        return reply.code, read_json(reply.body)

    async def everything(self, path: str) -> list[Any]:
        """All objects of a list."""
        code, found = await self.send("GET", path)
        assert code == 200, found
        items: list[Any] = found["items"]
        return items

    async def close(self) -> None:
        await self.transport.close()
