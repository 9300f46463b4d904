"""The answer of a server without transactions, for transports of tests that intercept single writes."""

from __future__ import annotations

from dray.client.transactions.support import TRANSACTIONS_PATH
from dray.client.transport import TransportRequest, TransportResponse

_NOT_FOUND = (
    b'{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404,'
    b'"message":"the server could not find the requested resource"}'
)


def is_transaction(request: TransportRequest) -> bool:
    """Whether a request asks for several writes in one transaction."""
    return request.method == "POST" and request.path == TRANSACTIONS_PATH


def answer_not_served() -> TransportResponse:
    """What a server without transactions answers to one."""
    return TransportResponse(404, {"content-type": "application/json"}, _NOT_FOUND)
