"""Configurations that stand in a store and came past no rules: older servers kept whatever they got."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dray.server.admission.webhooks.active_webhooks import Hooks
from dray.server.admission.webhooks.service_addresses import parsed
from dray.server.admission.webhooks.webhook_client import Caller, Trouble
from dray.server.watch.cache import Cache
from dray.store import Put
from dray.store.memory import MemoryStore

PLACE = b"/registry/admissionregistration.k8s.io/validatingwebhookconfigurations/"


def stored(name: str, webhooks: Any) -> Put:
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"},
        "webhooks": webhooks,
    }
    return Put(PLACE + name.encode(), json.dumps(document, separators=(",", ":")).encode())


async def hooks(*puts: Put) -> tuple[Hooks, list[str]]:
    store = MemoryStore()
    told: list[str] = []
    await store.txn([], puts)
    cache = Cache(store)
    await cache.fill()
    found = Hooks(cache, lambda name, _why: told.append(name))
    await store.close()
    return found, told


def test_one_that_cannot_be_read_is_told_and_others_are_in_force():
    async def story() -> None:
        found, told = await hooks(stored("a", "nonsense"), stored("b", [{"name": "x.y.z", "strange": 1}]))
        assert set(told) == {"a"}
        assert [(hook.configuration, hook.name) for hook in found.hooks] == [("b", "x.y.z")]

    asyncio.run(story())


def test_what_is_not_said_counts_as_its_default():
    async def story() -> None:
        found, _ = await hooks(stored("a", [{"name": "x.y.z"}]))
        (hook,) = found.hooks
        assert (hook.may_fail, hook.is_curious, hook.mutating, hook.seconds) == (False, False, False, 10.0)

    asyncio.run(story())


def test_nothing_is_sent_without_tls():
    async def story() -> None:
        url = {"url": "http://127.0.0.1:1/x"}
        found, _ = await hooks(stored("a", [{"name": "x.y.z", "clientConfig": url}, {"name": "x.y.w"}]))
        caller = Caller(parsed([]))
        for hook in found.hooks:
            assert await caller.call(hook, b"{}", 1.0) == Trouble("its address is not one of https")

    asyncio.run(story())
