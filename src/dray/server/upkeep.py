"""What a server does by itself: begin with what every cluster has, and forget the past that nobody reads."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from dray.api.jsontext import write_json
from dray.api.kinds import Kind, kind_of
from dray.server.call import MASTERS, Answer, Call, Request, User
from dray.server.failures import Failure
from dray.store import Store
from dray.store.errors import StoreError

SERVER: Final = User("system:apiserver", (MASTERS,))
NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
HISTORY_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 15.0

Resources = Callable[[Request], Awaitable[Answer]]


def first_documents(ca_pem: str) -> list[dict[str, Any]]:
    """Objects that every cluster has from its beginning."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES
    ]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        for name in NAMESPACES
    ]
    authentication = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": ca_pem} if ca_pem else {},
    }
    return [*namespaces, *accounts, authentication]


async def begin_with(resources: Resources, documents: Sequence[Mapping[str, Any]]) -> None:
    """Create what is not there; what is there stays as somebody may have changed it."""
    for document in documents:
        kind, version = kind_of(document)
        namespace = document["metadata"].get("namespace", "")
        try:
            await resources(_creation(kind, version, namespace, document))
        except Failure as failure:
            if failure.reason != "AlreadyExists":
                raise


def _creation(kind: Kind, version: str, namespace: str, document: Mapping[str, Any]) -> Request:
    call = Call("create", "", kind, kind.group, version, kind.plural, namespace)
    return Request(call, SERVER, {"user-agent": "dray-server"}, write_json(document))


async def forget_the_past(store: Store, monotonic: Callable[[], float]) -> None:
    """Compact what is older than a few minutes, for ever; the owner runs this as a task."""
    marks: deque[tuple[float, int]] = deque()
    while True:
        try:
            marks.append((monotonic(), await store.revision()))
            while len(marks) > 1 and marks[1][0] <= monotonic() - HISTORY_SECONDS:
                marks.popleft()
            if marks[0][0] <= monotonic() - HISTORY_SECONDS:
                await store.compact(marks[0][1])
        except StoreError:
            pass  # a store in trouble is told by everything else that needs it
        await asyncio.sleep(_LOOK_SECONDS)
