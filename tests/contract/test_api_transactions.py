"""Transactions: several writes in one request, all or nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.api.transactions import TRANSACTIONS_PATH
from tests.contract.api import Api, path, serving


def config(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def build(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Transaction", "spec": {"requests": list(requests)}}


def post(where: str, body: Any) -> dict[str, Any]:
    return {"method": "POST", "path": where, "body": body}


def put(where: str, body: Any) -> dict[str, Any]:
    return {"method": "PUT", "path": where, "body": body}


def patch(where: str, body: Any, kind: str = "application/merge-patch+json") -> dict[str, Any]:
    return {"method": "PATCH", "path": where, "contentType": kind, "body": body}


def delete(where: str, body: Any = None) -> dict[str, Any]:
    return {"method": "DELETE", "path": where, **({} if body is None else {"body": body})}


def run(check) -> None:
    async def main() -> None:
        async with serving() as api:
            await check(api)

    asyncio.run(main())


def test_requests_are_carried_out_in_their_order():
    async def check(api: Api) -> None:
        reply = await api.ask(
            "POST",
            TRANSACTIONS_PATH,
            build(
                post(path("configmaps"), config("a", x="1")),
                patch(path("configmaps", "a"), {"data": {"y": "2"}}),
                post(path("configmaps"), config("b")),
                delete(path("configmaps", "b")),
            ),
        )
        assert reply.code == 201, reply.document
        responses = reply.document["status"]["responses"]
        assert [each["code"] for each in responses] == [201, 200, 201, 200]
        versions = [int(each["body"]["metadata"]["resourceVersion"]) for each in responses[:3]]
        assert versions == sorted(set(versions))
        stored = await api.get(path("configmaps", "a"))
        assert stored == responses[1]["body"]
        assert (await api.ask("GET", path("configmaps", "b"))).code == 404

    run(check)


def test_a_refused_request_refuses_the_transaction():
    async def check(api: Api) -> None:
        reply = await api.ask(
            "POST",
            TRANSACTIONS_PATH,
            build(post(path("configmaps"), config("a")), delete(path("configmaps", "none"))),
        )
        assert reply.code == 404
        assert reply.message == (
            'request 2 of 2 (delete configmaps default/none): configmaps "none" not found'
        )
        assert reply.document["details"]["causes"][-1]["field"] == "spec.requests[1]"
        assert await api.names(path("configmaps")) == []

    run(check)
