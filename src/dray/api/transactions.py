"""Transaction: several writes that a server carries out together, or not at all.

A transaction is created and not stored: `spec.requests` are ordinary requests of the API, and the answer has
their responses in `status.responses`, in the same order. Each write gets a resource version of its own, as if
the requests had been sent one after the other with nothing in between. A request sees the results of the
earlier ones.

A request that is refused refuses the transaction: the answer is the `Status` of that request, its message
says which one it was, and the last of its causes names it (`find_failed_request`). A server that cannot carry
out a transaction which it may carry out one by one, because admission webhooks review a write, answers 501
with the reason `NotImplemented`. A server whose store has one revision for everything that is written
together does not list the resource. In both cases clients send the requests one by one.

Kubernetes has no such kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from dray.api.meta import ApiStruct, CompositeApiStruct, always_encode

GROUP: Final = "dray.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "transactions"
KIND: Final = "Transaction"
TRANSACTIONS_PATH: Final = f"/apis/{GROUP}/{VERSION}/{PLURAL}"

METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
"""The methods of the requests in a transaction: writes of single objects."""

JSON_TYPE: Final = "application/json"
PATCH_TYPES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
"""The media types of patches in a transaction; server-side apply is not among them."""

UNAVAILABLE_CODE: Final = 501
UNAVAILABLE_REASON: Final = "NotImplemented"
"""The answer when these requests cannot be carried out together, and perhaps one by one."""

FAILED_REQUEST_REASON: Final = "TransactionRequestFailed"
"""The reason of the cause that names the request which was refused."""

_REQUEST_FIELD = re.compile(r"spec\.requests\[(\d+)\]")


class TransactionRequest(ApiStruct, frozen=True):
    """One request: what a client would send by itself."""

    method: str = ""
    """`POST`, `PUT`, `PATCH` or `DELETE`."""
    path: str = ""
    """The path and the query of the request."""
    content_type: str = JSON_TYPE
    """The media type of the body: JSON, or that of a patch."""
    body: msgspec.Raw = msgspec.Raw(b"")
    """The body, as JSON; absent when there is none."""


class TransactionSpec(CompositeApiStruct, frozen=True):
    """What is carried out."""

    requests: tuple[TransactionRequest, ...] = ()
    """The requests, in the order in which they are carried out."""


class TransactionResponse(ApiStruct, frozen=True):
    """The response to one request."""

    code: int = 0
    """The HTTP status code."""
    body: msgspec.Raw = msgspec.Raw(b"{}")
    """The body, as JSON."""


class TransactionStatus(CompositeApiStruct, frozen=True):
    """What came of it."""

    responses: tuple[TransactionResponse, ...] = ()
    """The responses, in the order of the requests."""


class Transaction(CompositeApiStruct, frozen=True):
    """Several writes that a server carries out together, or not at all."""

    api_version: str = always_encode(f"{GROUP}/{VERSION}")
    kind: str = always_encode(KIND)
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    """Accepted and ignored: nothing is stored."""
    spec: TransactionSpec = TransactionSpec()
    status: TransactionStatus = TransactionStatus()


def find_failed_request(causes: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the position of the request that was refused, from the causes of a `Status`; None for none."""
    for cause in causes:
        if cause.get("reason") == FAILED_REQUEST_REASON:
            found = _REQUEST_FIELD.fullmatch(str(cause.get("field")))
            return None if found is None else int(found[1])
    return None
