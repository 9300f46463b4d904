"""Transaction support: commits transactions on servers that have them, and knows which have not.

Theory of operation: whether the server serves transactions is asked once, before the first commit. A "no" is
remembered for a while, because the server may be upgraded. A server that serves them can still decline a
commit, for example because an admission webhook has to see one of its writes; that is remembered for
transactions of the same kinds. In both cases nothing was written, `commit` returns `TransactionsUnsupported`,
and the caller writes one by one. Any other refusal is the one that the refused write alone would have met; it
is raised, and nothing was written either. `find_refused_write` tells which write it was. When no response
comes, all of it was written or nothing.

Transactions that are committed at the same time are sent in batches (`batches`). A transaction of one write
is that write: it needs no server with transactions, and is never declined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.api.limits import REQUESTS_PER_TRANSACTION
from dray.api.transactions import GROUP, TRANSACTIONS_PATH, VERSION
from dray.client.errors import ApiError, NotFoundError
from dray.client.rest_client import RestClient
from dray.client.transactions.batches import TransactionBatcher
from dray.client.transactions.declined_writes import REMEMBERED_SECONDS, DeclinedWrites
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.transaction_requests import find_refused_write, get_refusal_message
from dray.client.transport import TransportRequest, TransportResponse
from dray.client.write_requests import ObjectWrite, WriteRequests

__all__ = [
    "API_PATH",
    "MAX_WRITES",
    "REMEMBERED_SECONDS",
    "TRANSACTIONS_PATH",
    "TransactionSupport",
    "TransactionsUnsupported",
    "find_refused_write",
    "get_refusal_message",
]

API_PATH: Final = f"/apis/{GROUP}/{VERSION}"
MAX_WRITES: Final = REQUESTS_PER_TRANSACTION
"""The most writes of one transaction."""

_NOT_SERVED_CODES: Final = frozenset({403, 404, 405})
_DECLINED_CODES: Final = frozenset({413, 501})


@dataclass(frozen=True, slots=True)
class TransactionsUnsupported:
    """The server does not commit this transaction; nothing was written."""

    reason: str


class _Resource(msgspec.Struct):
    name: str = ""
    verbs: list[str] = msgspec.field(default_factory=list)


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = msgspec.field(default_factory=list)


_RESOURCE_LIST_DECODER: Final = msgspec.json.Decoder(_ResourceList)


class TransactionSupport:
    """Commits transactions on one server."""

    def __init__(
        self, rest_client: RestClient, requests: WriteRequests, forget_version: Callable[[Kind], None]
    ) -> None:
        self._rest_client, self._requests, self._forget_version = rest_client, requests, forget_version
        self._clock = rest_client.options.time_source.clock
        self._is_served: bool | None = None
        self._ask_again_at = 0.0
        self._declined = DeclinedWrites(self._clock)
        self._batcher = TransactionBatcher(rest_client, self._declined)
        self._lock = asyncio.Lock()

    async def is_served(self) -> bool:
        """Whether the server serves transactions, as far as is known; raise when it does not answer."""
        if not self._is_known():
            async with self._lock:
                if not self._is_known():
                    self._remember(await self._ask())
        return bool(self._is_served)

    async def commit(
        self, transaction: ObjectTransaction, *, wants_objects: bool = True
    ) -> tuple[Any, ...] | TransactionsUnsupported:
        """Write everything and return the objects as the server stored them, None for writes without one.

        Or nothing was written: because the server does not commit such a transaction, or because it refused
        one of the writes; then its error is raised. A caller that does not want the objects gets None for
        each.
        """
        if not 1 <= len(transaction) <= MAX_WRITES:
            return TransactionsUnsupported(f"{len(transaction)} writes; expected 1 to {MAX_WRITES}")
        is_served = await self.is_served()
        if not is_served and len(transaction) > 1:
            return TransactionsUnsupported("the server does not serve transactions")
        writes = await transaction.build_writes(self._requests)
        is_mergeable = is_served and not self._declined.includes(writes)
        if not is_mergeable and len(writes) > 1:
            return TransactionsUnsupported("the server declined such a transaction a moment ago")
        try:
            responses = await self._send(writes, is_mergeable)
        except ApiError as refused:
            return self._accept_decline(refused, writes)
        if not wants_objects:
            return (None,) * len(writes)
        return tuple(map(ObjectWrite.decode_response, writes, responses))

    async def _send(self, writes: Sequence[ObjectWrite], is_mergeable: bool) -> Sequence[TransportResponse]:
        if is_mergeable:
            return await self._batcher.submit(writes)
        return (await self._batcher.send_single(writes[0]),)

    def _accept_decline(self, refused: ApiError, writes: Sequence[ObjectWrite]) -> TransactionsUnsupported:
        """Remember that the server does not commit a transaction; raise the refusal of one of its writes."""
        position = find_refused_write(refused)
        is_alone = len(writes) == 1
        if refused.code in _DECLINED_CODES and not is_alone:
            self._declined.remember(writes)
        elif position is None and refused.code in _NOT_SERVED_CODES:
            self._remember(False)
        else:
            if isinstance(refused, NotFoundError) and refused.is_unknown_resource and position is not None:
                self._forget_version(writes[position].kind)
            raise refused
        return TransactionsUnsupported(refused.message)

    def _is_known(self) -> bool:
        return self._is_served is not None and (
            self._is_served or self._clock.monotonic() < self._ask_again_at
        )

    def _remember(self, is_served: bool) -> None:
        self._is_served = is_served
        self._ask_again_at = self._clock.monotonic() + REMEMBERED_SECONDS

    async def _ask(self) -> bool:
        try:
            response = await self._rest_client.call(TransportRequest("GET", API_PATH))
            listed = _RESOURCE_LIST_DECODER.decode(response.body).resources
        except (ApiError, msgspec.MsgspecError):
            return False
        return any(resource.name == "transactions" and "create" in resource.verbs for resource in listed)
