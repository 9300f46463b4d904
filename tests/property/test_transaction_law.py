"""The law of transactions: what they store, answer and show to watchers is what single writes in a row would.

Two servers get the same batches of random requests: one as transactions, one as single requests up to the
first that is refused. Codes, bodies, messages and the whole history of both stores are equal, apart from uids
and times. A transaction that is refused writes nothing; then its first requests are sent as a transaction of
their own, so that both servers go on with the same objects.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dray.api.json_text import read_json, write_json
from dray.api.transactions import find_failed_request
from dray.store import Store
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore
from tests.contract.api import JSON_PATCH, Api, serving
from tests.contract.documents import allocation, claim, config, pod, resource_slice
from tests.contract.running import take
from tests.contract.transactions import (
    CLAIMS,
    CONFIGS,
    PODS,
    bind,
    delete,
    patch,
    post,
    put,
    send,
    send_single,
)

BATCHES = 60
LARGEST = 6
FINALIZER = "example.com/kept"
Document = dict[str, Any]
Draw = Callable[[random.Random], Document]

_UID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _name(rng: random.Random, start: str) -> str:
    return f"{start}{rng.randrange(3)}"


def _finalizers(rng: random.Random) -> Document:
    return {"finalizers": [FINALIZER]} if rng.random() < 0.3 else {}


def _patch_claim(rng: random.Random, body: Document, sub: str = "") -> Document:
    return patch(f"{CLAIMS}/{_name(rng, 'claim')}{sub}", body)


def _allocate(rng: random.Random) -> Document:
    status = {"allocation": allocation(f"gpu-{rng.randrange(3)}")}
    return _patch_claim(rng, {"status": status}, "/status")


def _patch_config(rng: random.Random) -> Document:
    operations = [
        {"op": "test", "path": "/data/key", "value": "value"},
        {"op": "add", "path": f"/data/k{rng.randrange(2)}", "value": str(rng.randrange(2))},
    ]
    return patch(f"{CONFIGS}/{_name(rng, 'config')}", operations, JSON_PATCH)


REQUESTS: tuple[Draw, ...] = (
    lambda rng: post(f"{CONFIGS}?fieldManager=law", config(_name(rng, "config"), **_finalizers(rng))),
    lambda rng: patch(f"{CONFIGS}/{_name(rng, 'config')}", {"data": {"k0": str(rng.randrange(2))}}),
    _patch_config,
    lambda rng: put(f"{CONFIGS}/{(name := _name(rng, 'config'))}", config(name) | {"extra": 1}),
    lambda rng: patch(f"{CONFIGS}/{_name(rng, 'config')}", {"metadata": {"finalizers": None}}),
    lambda rng: delete(f"{CONFIGS}/{_name(rng, 'config')}"),
    lambda rng: post(CLAIMS, claim(_name(rng, "claim"), **_finalizers(rng))),
    lambda rng: post(CLAIMS, claim(_name(rng, "claim"))),
    _allocate,
    _allocate,
    lambda rng: _patch_claim(rng, {"status": {"allocation": None}}, "/status"),
    lambda rng: _patch_claim(rng, {"metadata": {"finalizers": None}}),
    lambda rng: delete(f"{CLAIMS}/{_name(rng, 'claim')}"),
    lambda rng: post(PODS, pod(_name(rng, "pod"), claim_name="claim0")),
    lambda rng: bind(_name(rng, "pod")),
    lambda rng: patch(f"{PODS}/{_name(rng, 'pod')}/status", {"status": {"phase": "Running"}}),
    lambda rng: delete(f"{PODS}/{_name(rng, 'pod')}", {"gracePeriodSeconds": rng.choice((0, 5))}),
)


def _normalize(value: Any, start: int) -> Any:
    """A document without uids and times, and with versions counted from the start."""
    plain = _TIME.sub(b"TIME", _UID.sub(b"UID", write_json(value)))
    return read_json(
        re.sub(
            rb'"resourceVersion":"(\d+)"',
            lambda found: b'"resourceVersion":"%d"' % (int(found[1]) - start),
            plain,
        )
    )


class _Server:
    """One of the two servers."""

    def __init__(self, api: Api, start: int) -> None:
        self.api, self.start = api, start

    def normalize(self, value: Any) -> Any:
        return _normalize(value, self.start)

    async def read_history(self) -> list[Any]:
        until = await self.api.store.get_revision()
        return [
            (batch.revision - self.start, each.key, each.entry and self._read_value(each.entry.value))
            for batch in await take(self.api.store, b"/", self.start, until)
            for each in batch.events
        ]

    def _read_value(self, value: bytes) -> Any:
        return self.normalize(read_json(value)) if value[:1] == b"{" else value


async def _open(stack: AsyncExitStack, store: Store) -> _Server:
    stack.push_async_callback(store.close)
    api = await stack.enter_async_context(serving(store))
    await api.create(resource_slice("s", devices=3))
    return _Server(api, await store.get_revision())


async def _check_batch(single: _Server, joint: _Server, requests: list[Document]) -> None:
    before = await joint.api.store.get_revision()
    together = await send(joint.api, *requests)
    alone = []
    for request in requests:
        alone.append(await send_single(single.api, request))
        if alone[-1].code >= 300:
            break
    failed = len(alone) - 1
    if alone[-1].code >= 300:
        assert together.code == alone[-1].code, (requests, alone[-1].document, together.document)
        assert find_failed_request(together.document["details"]["causes"]) == failed
        said = single.normalize(alone[-1].message)
        assert joint.normalize(together.message).endswith(f"): {said}")
        assert await joint.api.store.get_revision() == before
        alone.pop()
        if not alone:
            return
        together = await send(joint.api, *requests[:failed])
    assert together.code == 201, (requests, together.document)
    responses = [(each["code"], each["body"]) for each in together.document["status"]["responses"]]
    expected = [(each.code, each.document) for each in alone]
    assert joint.normalize(responses) == single.normalize(expected)


async def _check_law(first: Store, second: Store, rng: random.Random) -> None:
    async with AsyncExitStack() as stack:
        single, joint = await _open(stack, first), await _open(stack, second)
        for _ in range(BATCHES):
            size = rng.randint(1, LARGEST)
            await _check_batch(single, joint, [rng.choice(REQUESTS)(rng) for _ in range(size)])
        assert await joint.read_history() == await single.read_history()


@pytest.mark.parametrize("seed", range(3))
def test_a_transaction_is_single_writes_in_a_row(seed: int) -> None:
    asyncio.run(_check_law(MemoryStore(), MemoryStore(), random.Random(seed)))


def test_the_law_holds_in_files(tmp_path: Any) -> None:
    async def check() -> None:
        second = await SqliteStore.open(tmp_path / "store.db")
        await _check_law(MemoryStore(), second, random.Random(7))

    asyncio.run(check())
