"""Requests as Go clients send them, over TLS, with JSON bodies."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF

JSON = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

ACCEPTS = {
    "typed": "application/json, */*",
    "protobuf first": "application/vnd.kubernetes.protobuf,application/json",
    "metadata": f"application/vnd.kubernetes.protobuf;{METADATA},{JSON};{METADATA},{JSON}",
    "discovery": (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    ),
}
"""What daemons accept, by the kind of client inside them."""

WATCH_LIST = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "timeoutSeconds": "404",
    "timeout": "6m44s",
}
LONGEST = aiohttp.ClientTimeout(30)


@dataclass(frozen=True)
class Told:
    """An answer."""

    code: int
    document: Any
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Daemon:
    """A component that asks the server under its own name."""

    session: aiohttp.ClientSession
    url: str
    agent: str

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "typed",
        content: str = JSON,
        **query: str,
    ) -> Told:
        headers = {"Accept": ACCEPTS[accept], "User-Agent": self.agent}
        if body is not None:
            headers["Content-Type"] = content
        sent = None if body is None else json.dumps(body)
        async with self.session.request(
            method, self.url + path, params=query, data=sent, headers=headers, timeout=LONGEST
        ) as answer:
            content_type, received = answer.content_type, await answer.read()
            return Told(answer.status, _read_body(content_type, received), answer.headers)

    async def good(self, method: str, path: str, body: Any = None, **asked: Any) -> Any:
        """The document of an answer that must be a success."""
        told = await self.ask(method, path, body, **asked)
        assert told.code in (200, 201), (method, path, told.document)
        return told.document

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "typed", **query: str) -> AsyncIterator[Lines]:
        headers = {"Accept": ACCEPTS[accept], "User-Agent": self.agent}
        async with self.session.get(
            self.url + path, params=query or WATCH_LIST, headers=headers, timeout=LONGEST
        ) as answer:
            assert answer.status == 200, (path, await answer.text())
            yield Lines(answer)


def _read_body(content_type: str, body: bytes) -> Any:
    if content_type == PROTOBUF:
        return kubernetes.decode(body)
    return json.loads(body) if content_type == JSON and body else body.decode()


class Lines:
    """The events of a watch."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def event(self) -> dict[str, Any]:
        line = await self._answer.content.readline()
        assert line, "the watch has ended"
        return dict(json.loads(line))

    async def present(self) -> tuple[list[dict[str, Any]], str]:
        """The objects there are, and the revision of the bookmark that ends them."""
        found: list[dict[str, Any]] = []
        while True:
            event = await self.event()
            if event["type"] == "BOOKMARK":
                metadata = event["object"]["metadata"]
                assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
                return found, metadata["resourceVersion"]
            assert event["type"] == "ADDED", event
            found.append(event["object"])


@asynccontextmanager
async def daemons(url: str, context: ssl.SSLContext) -> AsyncIterator[tuple[Daemon, Daemon]]:
    """A scheduler and a controller manager."""
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        version = "v1.37.0 (linux/amd64) kubernetes/local"
        yield (
            Daemon(session, url, f"kube-scheduler/{version}/scheduler"),
            Daemon(session, url, f"kube-controller-manager/{version}/resource-claim-controller"),
        )
    await asyncio.sleep(0.05)  # closing TLS takes a turn or two of the event loop
