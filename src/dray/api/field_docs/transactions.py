"""Documentation of the fields of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.transactions import (
    Transaction,
    TransactionRequest,
    TransactionResponse,
    TransactionSpec,
    TransactionStatus,
)

TRANSACTIONS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {
        Transaction: {
            "metadata": "Accepted and ignored: nothing is stored.",
            "spec": "The requests. Required.",
            "status": "Their responses, in the answer of the server.",
        },
        TransactionSpec: {
            "requests": "The requests, in the order in which they are carried out: all, or none. Required."
        },
        TransactionRequest: {
            "method": "`POST`, `PUT`, `PATCH` or `DELETE`. Required.",
            "path": "The path of the request with its query, such as "
            "`/api/v1/namespaces/default/configmaps?fieldManager=me`. Required.",
            "contentType": "The media type of the body; `application/json` unless it is a patch.",
            "body": "The body, as JSON; absent when there is none.",
        },
        TransactionStatus: {"responses": "The responses, in the order of the requests."},
        TransactionResponse: {"code": "The HTTP status code.", "body": "The body, as JSON."},
    }
)
