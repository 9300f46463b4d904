"""Transaction support: commits transactions on servers that have them, and knows which have not.

Theory of operation: whether the server serves transactions is asked once, before the first commit. A "no" is
remembered for a while, because the server may be upgraded. A server that serves them can still decline a
commit, for example because an admission webhook has to see one of its writes; that is remembered for
transactions of the same kinds. In both cases nothing was written, `commit` returns `TransactionsUnsupported`,
and the caller writes one by one. Any other refusal is the one that the refused write alone would have met; it
is raised, and nothing was written either. `find_refused_write` tells which write it was. When no response
comes, all of it was written or nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.client.errors import ApiError, ClientError, NotFoundError
from dray.client.rest_client import RestClient
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transport import TransportRequest, TransportResponse
from dray.client.write_requests import ObjectWrite, WriteRequests
from dray.values.cache_bounds import CacheBound

API_PATH: Final = "/apis/dray.dev/v1alpha1"
TRANSACTIONS_PATH: Final = f"{API_PATH}/transactions"
MAX_WRITES: Final = 64
"""The most writes of one transaction."""
REMEMBERED_SECONDS: Final = 60.0
"""So long a "no" of the server is remembered."""

_DECLINED_BOUND: Final = CacheBound("declined transactions", 64, "the client of one server")
_NOT_SERVED_CODES: Final = frozenset({403, 404, 405})
_DECLINED_CODES: Final = frozenset({413, 501})
_REFUSED_REASON: Final = "TransactionRequestFailed"
_REQUEST_FIELD: Final = re.compile(r"spec\.requests\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class TransactionsUnsupported:
    """The server does not commit this transaction; nothing was written."""

    reason: str


class _StoredBody(msgspec.Struct):
    code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


class _TransactionStatus(msgspec.Struct):
    responses: list[_StoredBody] = msgspec.field(default_factory=list)


class _CommittedTransaction(msgspec.Struct):
    status: _TransactionStatus = msgspec.field(default_factory=_TransactionStatus)


class _Resource(msgspec.Struct):
    name: str = ""
    verbs: list[str] = msgspec.field(default_factory=list)


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = msgspec.field(default_factory=list)


_COMMITTED_DECODER = msgspec.json.Decoder(_CommittedTransaction)
_RESOURCE_LIST_DECODER = msgspec.json.Decoder(_ResourceList)


def find_refused_write(error: ApiError) -> int | None:
    """Return the position of the write that was refused; None when the error is about none."""
    for cause in error.causes:
        named = _REQUEST_FIELD.fullmatch(cause.field)
        if named is not None and cause.reason == _REFUSED_REASON:
            return int(named[1])
    return None


def get_refusal_message(error: ApiError) -> str:
    """Return the message of a refusal as the refused write alone would have met it."""
    for cause in error.causes:
        if cause.reason == _REFUSED_REASON:
            return error.message.removeprefix(f"{cause.message}: ")
    return error.message


class TransactionSupport:
    """Commits transactions on one server."""

    def __init__(
        self, rest_client: RestClient, requests: WriteRequests, forget_version: Callable[[Kind], None]
    ) -> None:
        self._rest_client, self._requests, self._forget_version = rest_client, requests, forget_version
        self._clock = rest_client.options.time_source.clock
        self._is_served: bool | None = None
        self._ask_again_at = 0.0
        self._declined: dict[frozenset[str], float] = {}
        """Kinds of transactions that the server declined, with the time until which that is remembered."""
        self._lock = asyncio.Lock()

    async def is_served(self) -> bool:
        """Whether the server serves transactions, as far as is known; raise when it does not answer."""
        if not self._is_known():
            async with self._lock:
                if not self._is_known():
                    self._remember(await self._ask())
        return bool(self._is_served)

    async def commit(self, transaction: ObjectTransaction) -> tuple[Any, ...] | TransactionsUnsupported:
        """Write everything and return the objects as the server stored them, None for writes without one.

        Or nothing was written: because the server does not commit such a transaction, or because it refused
        one of the writes; then its error is raised.
        """
        if not 1 <= len(transaction) <= MAX_WRITES:
            return TransactionsUnsupported(f"{len(transaction)} writes; expected 1 to {MAX_WRITES}")
        if not await self.is_served():
            return TransactionsUnsupported("the server does not serve transactions")
        writes = await transaction.build_writes(self._requests)
        kinds = frozenset(f"{write.request.method} {write.kind.qualified_name}" for write in writes)
        if self._clock.monotonic() < self._declined.get(kinds, 0.0):
            return TransactionsUnsupported("the server declined such a transaction a moment ago")
        try:
            response = await self._rest_client.call(
                TransportRequest("POST", TRANSACTIONS_PATH, body=_encode_transaction(writes))
            )
        except ApiError as refused:
            return self._accept_decline(refused, writes, kinds)
        return _decode_responses(writes, response)

    def _accept_decline(
        self, refused: ApiError, writes: Sequence[ObjectWrite], kinds: frozenset[str]
    ) -> TransactionsUnsupported:
        """Remember that the server does not commit a transaction; raise the refusal of one of its writes."""
        position = find_refused_write(refused)
        if refused.code in _DECLINED_CODES:
            _DECLINED_BOUND.put(self._declined, kinds, self._clock.monotonic() + REMEMBERED_SECONDS)
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


def _encode_transaction(writes: Sequence[ObjectWrite]) -> bytes:
    return write_json(
        {
            "apiVersion": "dray.dev/v1alpha1",
            "kind": "Transaction",
            "spec": {"requests": [_encode_request(write.request) for write in writes]},
        }
    )


def _encode_request(request: TransportRequest) -> dict[str, Any]:
    query = f"?{urlencode(request.query)}" if request.query else ""
    encoded: dict[str, Any] = {"method": request.method, "path": request.path + query}
    if request.body:
        encoded |= {"contentType": request.content_type, "body": msgspec.Raw(request.body)}
    return encoded


def _decode_responses(writes: Sequence[ObjectWrite], response: TransportResponse) -> tuple[Any, ...]:
    try:
        stored = _COMMITTED_DECODER.decode(response.body).status.responses
    except msgspec.MsgspecError as broken:
        raise ClientError(f"the response to a transaction cannot be read: {broken}") from None
    if len(stored) != len(writes):
        raise ClientError(f"expected {len(writes)} responses to a transaction, got {len(stored)}")
    return tuple(
        write.decode_response(TransportResponse(one.code, {}, bytes(one.body)))
        for write, one in zip(writes, stored, strict=True)
    )
