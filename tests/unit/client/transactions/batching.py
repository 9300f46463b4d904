"""Transactions that are submitted together, for tests: a server in memory, and what reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dray.api.json_text import read_json
from dray.client.client import Client
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import TRANSACTIONS_PATH
from dray.client.transport import TransportRequest
from dray.cluster.local.transport import LocalTransport
from dray.server.http.application import ApiApplication
from dray.server.http.requests import AUTHENTICATED, MASTERS
from tests.contract.api import serving
from tests.contract.documents import config
from tests.contract.intercepted_transport import InterceptedTransport

CONFIG = get_kind("ConfigMap")


class Batching:
    """A client of a server in this process, and the writes that it sends."""

    def __init__(
        self, app: ApiApplication, transport_type: type[InterceptedTransport] = InterceptedTransport
    ) -> None:
        inner = LocalTransport(app, "admin", (MASTERS, AUTHENTICATED))
        self.transport = transport_type(inner, transactions=True)
        self.client = Client(self.transport, ClientOptions(max_attempts=1))

    async def commit_all(self, *transactions: ObjectTransaction) -> list[Any]:
        """Commit all in the same turn; a result is what `commit` returned or raised."""
        return await asyncio.gather(
            *map(self.client.transactions.commit, transactions), return_exceptions=True
        )

    def submit(self, transaction: ObjectTransaction) -> asyncio.Task[Any]:
        return asyncio.create_task(self.client.transactions.commit(transaction))

    def take_writes(self) -> list[str]:
        """Take the requests that write since the last time, by method and last part of their path."""
        asked, self.transport.asked = self.transport.asked, []
        return [
            f"{each.method} {each.path.rpartition('/')[2]}{_count_parts(each)}"
            for each in asked
            if each.method != "GET"
        ]

    async def list_names(self) -> set[str]:
        return {each["metadata"]["name"] for each in (await self.client.list(CONFIG, "default")).items}


def _count_parts(request: TransportRequest) -> str:
    if request.path != TRANSACTIONS_PATH:
        return ""
    return f" of {len(read_json(request.body)['spec']['requests'])}"


@asynccontextmanager
async def opening_batches(
    transport_type: type[InterceptedTransport] = InterceptedTransport,
) -> AsyncIterator[Batching]:
    """A client that knows already what the server serves."""
    async with serving() as api:
        batching = Batching(api.app, transport_type)
        await batching.client.transactions.is_served()
        await batching.list_names()
        yield batching


def create(*names: str) -> ObjectTransaction:
    """A transaction that creates config maps."""
    transaction = ObjectTransaction()
    for name in names:
        transaction.create(config(name))
    return transaction


def change(*names: str) -> ObjectTransaction:
    """A transaction that changes config maps."""
    transaction = ObjectTransaction()
    for name in names:
        transaction.patch(CONFIG, name, MergePatch({"data": {"changed": "yes"}}), "default")
    return transaction


def name_objects(result: Sequence[Any]) -> list[str]:
    return [each["metadata"]["name"] for each in result]
