"""Stored configurations that passed no validation: older servers stored whatever they got."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dray.server.admission.webhooks.active_webhooks import WebhookIndex
from dray.server.admission.webhooks.service_addresses import parse_addresses
from dray.server.admission.webhooks.webhook_client import WebhookClient, WebhookFailure
from dray.server.watch.cache import WatchCache
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


async def hooks(*puts: Put) -> tuple[WebhookIndex, list[str]]:
    store = MemoryStore()
    unreadable: list[str] = []
    await store.txn([], puts)
    cache = WatchCache(store)
    await cache.resync()
    found = WebhookIndex(cache, lambda name, _why: unreadable.append(name))
    await store.close()
    return found, unreadable


def test_a_malformed_configuration_is_reported_and_others_stay_active():
    async def run_case() -> None:
        found, unreadable = await hooks(
            stored("a", "nonsense"), stored("b", [{"name": "x.y.z", "strange": 1}])
        )
        assert set(unreadable) == {"a"}
        assert [(hook.configuration, hook.name) for hook in found.webhooks] == [("b", "x.y.z")]

    asyncio.run(run_case())


def test_absent_fields_have_their_defaults():
    async def run_case() -> None:
        found, _ = await hooks(stored("a", [{"name": "x.y.z"}]))
        (hook,) = found.webhooks
        assert (hook.ignores_failure, hook.is_reinvoked, hook.mutating, hook.timeout_seconds) == (
            False,
            False,
            False,
            10.0,
        )

    asyncio.run(run_case())


def test_nothing_is_sent_without_tls():
    async def run_case() -> None:
        url = {"url": "http://127.0.0.1:1/x"}
        found, _ = await hooks(stored("a", [{"name": "x.y.z", "clientConfig": url}, {"name": "x.y.w"}]))
        caller = WebhookClient(parse_addresses([]))
        for hook in found.webhooks:
            assert await caller.call(hook, b"{}", 1.0) == WebhookFailure("its address is not one of https")

    asyncio.run(run_case())
