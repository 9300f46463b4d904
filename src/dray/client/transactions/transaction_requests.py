"""Requests of transactions: how several writes are sent in one call, and what the answer says of each.

Rules for this file: it decides nothing and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from dray.api.json_text import write_json
from dray.api.transactions import (
    FAILED_REQUEST_REASON,
    TRANSACTIONS_PATH,
    Transaction,
    TransactionRequest,
    TransactionSpec,
    find_failed_request,
)
from dray.client.errors import ApiError, ClientError, build_api_error
from dray.client.transport import TransportRequest, TransportResponse
from dray.client.write_requests import ObjectWrite


class _StoredBody(msgspec.Struct):
    code: int = 0
    body: msgspec.Raw = msgspec.Raw(b"null")


class _TransactionStatus(msgspec.Struct):
    responses: list[_StoredBody] = msgspec.field(default_factory=list)


class _CommittedTransaction(msgspec.Struct):
    status: _TransactionStatus = msgspec.field(default_factory=_TransactionStatus)


_COMMITTED_DECODER: Final = msgspec.json.Decoder(_CommittedTransaction)


def build_transaction_request(writes: Sequence[ObjectWrite]) -> TransportRequest:
    """Build the request that carries out all writes, in their order, or none."""
    spec = TransactionSpec(requests=tuple(_build_part(write.request) for write in writes))
    return TransportRequest("POST", TRANSACTIONS_PATH, body=write_json(Transaction(spec=spec)))


def _build_part(request: TransportRequest) -> TransactionRequest:
    path = request.path + _encode_query(tuple(request.query.items())) if request.query else request.path
    if not request.body:
        return TransactionRequest(method=request.method, path=path)
    return TransactionRequest(
        method=request.method, path=path, content_type=request.content_type, body=msgspec.Raw(request.body)
    )


@lru_cache(maxsize=64)
def _encode_query(query: tuple[tuple[str, str], ...]) -> str:
    return f"?{urlencode(query)}"


def split_response(response: TransportResponse, count: int) -> Sequence[TransportResponse]:
    """Return the responses to the `count` writes of a transaction."""
    parts = response.parts
    if not parts:
        try:
            stored = _COMMITTED_DECODER.decode(response.body).status.responses
        except msgspec.MsgspecError as broken:
            raise ClientError(f"the response to a transaction cannot be read: {broken}") from None
        parts = tuple(TransportResponse(one.code, {}, bytes(one.body)) for one in stored)
    if len(parts) != count:
        raise ClientError(f"expected {count} responses to a transaction, got {len(parts)}")
    return parts


def find_refused_write(error: ApiError) -> int | None:
    """Return the position of the write that was refused; None when the error is about none."""
    causes = error.details.get("causes") or ()
    return find_failed_request(cause for cause in causes if isinstance(cause, Mapping))


def get_refusal_message(error: ApiError) -> str:
    """Return the message of a refusal as the refused write alone would have met it."""
    for cause in error.causes:
        if cause.reason == FAILED_REQUEST_REASON:
            return error.message.removeprefix(f"{cause.message}: ")
    return error.message


def name_refused_write(error: ApiError) -> ApiError:
    """Return the refusal of a write that was sent alone as that of the first write of a transaction."""
    cause = {"reason": FAILED_REQUEST_REASON, "message": error.message, "field": "spec.requests[0]"}
    causes = [*(error.details.get("causes") or ()), cause]
    status: dict[str, Any] = {
        "message": error.message,
        "reason": error.reason,
        "details": {**error.details, "causes": causes},
    }
    return build_api_error(status, error.code, error.retry_after)
