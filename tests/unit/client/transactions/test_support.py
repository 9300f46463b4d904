"""Transactions of the client, where a correct server of our own would not show the difference."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from dray.api.codec import decode_document
from dray.api.resource import ResourceClaim
from dray.client.client import Client, DeleteOptions
from dray.client.errors import (
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    ServiceUnavailableError,
)
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.client.transactions.support import (
    API_PATH,
    MAX_WRITES,
    REMEMBERED_SECONDS,
    TRANSACTIONS_PATH,
    TransactionsUnsupported,
    find_refused_write,
    get_refusal_message,
)
from tests.support.in_process_transport import InProcessTransport
from tests.unit.client.fakeapi import FakeApi, FakeResponse, InstantTime, claim, failed, serves

DISCOVERY = FakeResponse(
    {"kind": "APIResourceList", "resources": [{"name": "transactions", "verbs": ["create"]}]}
)
CLAIMS_OF_DEFAULT = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def obj(name: str = "a", version: int = 3) -> ResourceClaim:
    found: ResourceClaim = decode_document(claim(name, version)).object
    return found


def two_writes() -> ObjectTransaction:
    return ObjectTransaction().create(obj()).bind("p", "default", "node-a", uid="u")


def committed(*responses: tuple[int, dict]) -> FakeResponse:
    listed = [{"code": code, "body": body} for code, body in responses]
    return FakeResponse({"kind": "Transaction", "status": {"responses": listed}}, 201)


CREATED_AND_BOUND = committed((201, claim("a", 4)), (201, {"kind": "Status", "status": "Success"}))


def refused(code: int, reason: str, position: int | None = None, **details: str) -> FakeResponse:
    field = f"spec.requests[{position}]"
    causes = [] if position is None else [{"reason": "TransactionRequestFailed", "field": field}]
    return failed(code, reason, "no", details={"causes": causes, **details})


class Server:
    """A scripted server with transactions, and a client of it with a clock to turn."""

    def __init__(self, *answers: FakeResponse, discovery: FakeResponse = DISCOVERY) -> None:
        self.api, self.time = serves(FakeApi(), "v1"), InstantTime()
        self.api.answer("GET", API_PATH, discovery)
        if answers:
            self.api.answer("POST", TRANSACTIONS_PATH, *answers)
        options = ClientOptions(field_manager="me", time_source=self.time.time_source)
        self.client = Client(InProcessTransport(self.api, "tester"), options)

    async def commit(self, transaction: ObjectTransaction | None = None):
        return await self.client.transactions.commit(two_writes() if transaction is None else transaction)

    def count(self, method: str, path: str) -> int:
        return len(self.api.requests(method, path))


async def test_writes_are_sent_as_they_would_be_alone_and_in_order():
    server = Server(
        committed(
            (201, claim("a", 4)),
            (200, claim("a", 5)),
            (200, claim("b", 6)),
            (200, {"kind": "Status"}),
            (201, {"kind": "Status"}),
        )
    )
    transaction = ObjectTransaction().create(obj()).update_status(obj())
    transaction.patch(ResourceClaim, "b", MergePatch({"metadata": {"labels": {"x": "y"}}}), "default")
    transaction.delete(ResourceClaim, "c", "default", DeleteOptions(uid="7"))
    transaction.bind("p", "default", "node-a", uid="u")
    stored = await server.commit(transaction)
    assert [each and (each.metadata.name, each.metadata.resource_version) for each in stored] == [
        ("a", "4"),
        ("a", "5"),
        ("b", "6"),
        None,
        None,
    ]
    (sent,) = server.api.requests("POST", TRANSACTIONS_PATH)
    query = "?fieldManager=me"
    requests = sent.document["spec"]["requests"]
    assert [(each["method"], each["path"]) for each in requests] == [
        ("POST", f"{CLAIMS_OF_DEFAULT}{query}"),
        ("PUT", f"{CLAIMS_OF_DEFAULT}/a/status{query}"),
        ("PATCH", f"{CLAIMS_OF_DEFAULT}/b{query}"),
        ("DELETE", f"{CLAIMS_OF_DEFAULT}/c"),
        ("POST", f"/api/v1/namespaces/default/pods/p/binding{query}"),
    ]
    assert requests[2]["contentType"] == "application/merge-patch+json"
    assert requests[2]["body"] == {"metadata": {"labels": {"x": "y"}}}
    assert requests[3]["body"]["preconditions"] == {"uid": "7"}
    assert (sent.document["apiVersion"], sent.document["kind"]) == ("dray.dev/v1alpha1", "Transaction")


async def test_whether_transactions_are_served_is_asked_once():
    server = Server(CREATED_AND_BOUND)
    for _ in range(3):
        assert len(await server.commit()) == 2
    assert server.count("GET", API_PATH) == 1


@pytest.mark.parametrize(
    "discovery",
    [
        failed(404, "NotFound", "the server could not find the requested resource"),
        failed(403, "Forbidden", "no"),
        FakeResponse({"resources": [{"name": "preparations", "verbs": ["create"]}]}),
        FakeResponse(b"<html>"),
    ],
)
async def test_a_server_without_them_is_not_sent_any_and_is_asked_again_later(discovery):
    server = Server(CREATED_AND_BOUND, discovery=discovery)
    for _ in range(3):
        assert isinstance(await server.commit(), TransactionsUnsupported)
    assert (server.count("GET", API_PATH), server.count("POST", TRANSACTIONS_PATH)) == (1, 0)
    server.api.script["GET", API_PATH].append(DISCOVERY)
    server.api.script["GET", API_PATH].popleft()
    server.time.clock.advance(REMEMBERED_SECONDS)
    assert len(await server.commit()) == 2


async def test_a_server_that_does_not_serve_them_any_more_is_found_out_by_its_answer():
    gone = failed(404, "NotFound", "the server could not find the requested resource")
    server = Server(CREATED_AND_BOUND, gone, CREATED_AND_BOUND)
    assert len(await server.commit()) == 2
    assert isinstance(await server.commit(), TransactionsUnsupported)
    assert isinstance(await server.commit(), TransactionsUnsupported)
    assert server.count("POST", TRANSACTIONS_PATH) == 2
    server.time.clock.advance(REMEMBERED_SECONDS)
    assert len(await server.commit()) == 2
    assert server.count("GET", API_PATH) == 2


async def test_a_declined_transaction_is_remembered_for_its_kinds_only():
    server = Server(refused(501, "NotImplemented", 1), CREATED_AND_BOUND)
    assert isinstance(await server.commit(), TransactionsUnsupported)
    assert isinstance(await server.commit(), TransactionsUnsupported)
    assert server.count("POST", TRANSACTIONS_PATH) == 1
    other = ObjectTransaction().update_status(obj()).bind("p", "default", "node-a")
    assert len(await server.commit(other)) == 2
    server.time.clock.advance(REMEMBERED_SECONDS)
    assert len(await server.commit()) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refused(409, "Conflict", 1), ConflictError),
        (refused(404, "NotFound", 1, name="p", kind="pods"), NotFoundError),
        (refused(403, "Forbidden", 1), ForbiddenError),
    ],
)
async def test_the_refusal_of_a_write_is_raised_and_names_it(answer, expected):
    server = Server(answer, CREATED_AND_BOUND)
    with pytest.raises(expected) as raised:
        await server.commit()
    assert find_refused_write(raised.value) == 1
    assert len(await server.commit()) == 2


async def test_the_message_of_a_refusal_is_the_one_that_the_write_alone_would_have_met():
    which = "request 2 of 2 (create resourceclaims default/a)"
    causes = [
        {"reason": "FieldValueInvalid", "message": "no", "field": "spec"},
        {"reason": "TransactionRequestFailed", "message": which, "field": "spec.requests[1]"},
    ]
    server = Server(failed(422, "Invalid", f"{which}: it is invalid", details={"causes": causes}))
    with pytest.raises(InvalidObjectError) as raised:
        await server.commit()
    assert get_refusal_message(raised.value) == "it is invalid"


async def test_an_error_about_no_write_names_none():
    server = Server(failed(503, "ServiceUnavailable", "later"))
    with pytest.raises(ServiceUnavailableError) as raised:
        await server.commit()
    assert find_refused_write(raised.value) is None
    assert get_refusal_message(raised.value) == "later"


async def test_a_response_that_does_not_fit_is_an_error():
    for answer in (committed((201, claim("a", 4))), FakeResponse(b"{", 201)):
        with pytest.raises(ClientError):
            await Server(answer).commit()


async def test_too_many_writes_and_none_are_not_sent():
    server = Server(CREATED_AND_BOUND)
    long = ObjectTransaction()
    for _ in range(MAX_WRITES + 1):
        long.create(obj())
    assert isinstance(await server.commit(long), TransactionsUnsupported)
    assert isinstance(await server.commit(ObjectTransaction()), TransactionsUnsupported)
    assert server.count("POST", TRANSACTIONS_PATH) == 0


async def test_bodies_keep_every_digit():
    server = Server(CREATED_AND_BOUND)
    number = "0.10000000000000000000001"
    body = json.loads(f'{{"x": {number}}}', parse_float=Decimal)
    transaction = ObjectTransaction().patch(ResourceClaim, "a", MergePatch(body), "default")
    await server.commit(transaction.bind("p", "default", "node-a"))
    (sent,) = server.api.requests("POST", TRANSACTIONS_PATH)
    assert number.encode() in sent.body
