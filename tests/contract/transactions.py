"""Transactions for tests: their requests in short words, and a server that carries them out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.api.transactions import TRANSACTIONS_PATH
from dray.store import SequenceStore
from tests.contract.api import MERGE, Api, ServerResponse, path, serving
from tests.contract.backends import Backend

Document = dict[str, Any]

CLAIMS, PODS, CONFIGS = path("resourceclaims"), path("pods"), path("configmaps")


@asynccontextmanager
async def serving_on(backend: Backend, **options: Any) -> AsyncIterator[Api]:
    """A server on a store that commits sequences."""
    async with backend.open() as store:
        if not isinstance(store, SequenceStore):
            pytest.skip(f"{backend.name} gives one revision to all that it commits together")
        async with serving(store, **options) as api:
            yield api


def post(where: str, body: Any) -> Document:
    return {"method": "POST", "path": where, "body": body}


def put(where: str, body: Any) -> Document:
    return {"method": "PUT", "path": where, "body": body}


def patch(where: str, body: Any, kind: str = MERGE) -> Document:
    return {"method": "PATCH", "path": where, "contentType": kind, "body": body}


def delete(where: str, body: Any = None) -> Document:
    return {"method": "DELETE", "path": where, **({} if body is None else {"body": body})}


def bind(pod: str, node: str = "node-a") -> Document:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    return post(path("pods", pod, sub="binding"), body)


def build(*requests: Document) -> Document:
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Transaction", "spec": {"requests": list(requests)}}


async def send(api: Api, *requests: Document, **query: Any) -> ServerResponse:
    """Send a transaction."""
    return await api.ask("POST", TRANSACTIONS_PATH, build(*requests), **query)


async def commit(api: Api, *requests: Document) -> list[Document]:
    """The responses of a transaction that is carried out."""
    reply = await send(api, *requests)
    assert reply.code == 201, reply.document
    assert (reply.document["apiVersion"], reply.document["kind"]) == ("dray.dev/v1alpha1", "Transaction")
    responses: list[Document] = reply.document["status"]["responses"]
    assert len(responses) == len(requests)
    return responses


async def send_single(api: Api, request: Mapping[str, Any]) -> ServerResponse:
    """Send a request of a transaction by itself."""
    where, _, query = str(request["path"]).partition("?")
    parameters = dict(part.split("=", 1) for part in query.split("&") if part)
    headers = {"content-type": request.get("contentType", "application/json")}
    return await api.ask(request["method"], where, request.get("body"), headers=headers, **parameters)
