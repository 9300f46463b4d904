"""The scheduler on a server without a ledger: it looks after each allocation whether somebody else has it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from dray.api.resource import ResourceClaim
from dray.client.errors import build_api_error
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from dray.guard import options as guard_options
from dray.placement import profile
from dray.scheduler import ledger_monitor
from dray.scheduler.binding import duplicate_check
from dray.scheduler.ledger_monitor import LedgerKind, LedgerMonitor
from dray.telemetry.logs import build_silent_logger
from tests.contract.controlled import EVENT, by_name, pod
from tests.contract.documents import allocation
from tests.contract.intercepted_transport import InterceptedTransport, RequestGate
from tests.contract.scheduled import Place, asks, devices_of, exactly, impatient, place, way

__all__ = ["impatient", "way"]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_check, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(duplicate_check, "CONTESTED_SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(duplicate_check, "YIELD_SECONDS", 0.5)


async def hide_dray(request: TransportRequest) -> None:
    """Answer as a server that is not dray's."""
    if request.path.startswith("/apis/dray.dev"):
        raise build_api_error({"code": 404, "reason": "NotFound", "message": "not found"})


def open_stock_client(here: Place) -> tuple[Any, InterceptedTransport]:
    client, transport = here.intercept_client()
    transport.before = hide_dray
    return client, transport


def free(name: str) -> dict[str, Any]:
    return asks(exactly(), name=name, made=False)


async def take(here: Place, name: str, device: str) -> None:
    """Allocate a device to a claim as another scheduler does, without looking."""
    status = {"status": {"allocation": allocation(device)}}
    await here.client.patch(ResourceClaim, name, MergePatch(status), "default", subresource="status")


async def list_events(here: Place, reason: str) -> list[Any]:
    found = await here.client.list(EVENT, "default")
    return [each for each in found.items if each["reason"] == reason]


async def test_an_allocation_that_was_stored_first_wins(way, tmp_path):
    async with place(way, tmp_path, ledger=False) as here:
        await here.cluster(1, devices=2)
        await here.make(free("slow"), free("fast"))
        client, transport = open_stock_client(here)
        gate = RequestGate("PUT", "/resourceclaims/slow/status", most=1)

        async def meddle(request: TransportRequest) -> None:
            await hide_dray(request)
            await gate(request)

        transport.before = meddle
        async with here.scheduling(client) as scheduler:
            assert scheduler.ledger.kind is LedgerKind.NONE
            await here.make(pod("slow", by_name("slow")))
            await gate.reached.wait()
            await take(here, "fast", "gpu-0")
            gate.open()
            await here.until_bound("slow")
            assert await here.held() == {"slow": ["node-a/gpu-1"], "fast": ["node-a/gpu-0"]}
            assert "dray_scheduler_duplicates_total 1.0" in scheduler.metrics.render().decode()
            (told,) = await here.until(lambda: list_events(here, "DuplicateAllocation"), bool)
        assert told["type"] == "Warning"
        assert told["involvedObject"]["name"] == "slow"
        assert (
            "gave its devices back: device gpu.example.com/node-a/gpu-0 is held by claim default/fast"
            in (told["message"])
        )


async def test_a_claim_stored_later_that_does_not_yield_keeps_its_device(way, tmp_path, monkeypatch):
    """kube-scheduler does not know the rule; our pod is not bound yet, so ours yields."""
    monkeypatch.setattr(duplicate_check, "SETTLE_SECONDS", 0.5)
    async with place(way, tmp_path, ledger=False) as here:
        await here.cluster(1, devices=1)
        await here.make(free("ours"), free("theirs"))
        client, _transport = open_stock_client(here)
        async with here.scheduling(client):
            await here.make(pod("ours", by_name("ours")))
            await here.until(lambda: here.claim("ours"), lambda seen: seen.status.allocation)
            await take(here, "theirs", "gpu-0")
            await here.until(lambda: here.claim("ours"), lambda seen: not seen.status.allocation)
            await here.until_refused("ours", "in use by default/theirs")
            assert await here.held() == {"ours": [], "theirs": ["node-a/gpu-0"]}


async def test_schedulers_that_know_the_rule_give_no_device_twice(way, tmp_path):
    names = ("one", "two", "three")
    async with place(way, tmp_path, ledger=False) as here, AsyncExitStack() as stack:
        await here.cluster(1, devices=12)
        claims = [f"c{number}" for number in range(12)]
        await here.make(*map(free, claims))
        for name in names:
            client, _ = open_stock_client(here)
            options = profile.PlacementOptions(scheduler_name=name)
            await stack.enter_async_context(here.scheduling(client, placement=options, identity=name))
        waiting = [
            pod(name, by_name(name), schedulerName=names[number % 3]) for number, name in enumerate(claims)
        ]
        await asyncio.gather(*map(here.make, waiting))
        await here.until_bound(*claims)
        held = Counter(device for devices in (await here.held()).values() for device in devices)
        assert set(held.values()) == {1}
        assert len(held) == 12


async def test_shares_of_a_device_are_checked_by_their_sum(way, tmp_path):
    async with place(way, tmp_path, ledger=False) as here:
        await here.cluster(1, devices=0)
        shared = {
            "name": "gpu-0",
            "allowMultipleAllocations": True,
            "capacity": {"memory": {"value": "10Gi"}},
        }
        await here.make(devices_of("node-a", shared))
        amount = {"requests": {"memory": "6Gi"}}
        await here.make(*(asks(exactly(capacity=amount), name=name, made=False) for name in ("slow", "fast")))
        client, transport = open_stock_client(here)
        gate = RequestGate("PUT", "/resourceclaims/slow/status", most=1)

        async def meddle(request: TransportRequest) -> None:
            await hide_dray(request)
            await gate(request)

        transport.before = meddle
        async with here.scheduling(client):
            await here.make(pod("slow", by_name("slow")))
            await gate.reached.wait()
            result = {
                "request": "gpu",
                "driver": "gpu.example.com",
                "pool": "node-a",
                "device": "gpu-0",
                "shareID": "00000000-0000-4000-8000-00000000ffff",
                "consumedCapacity": {"memory": "6Gi"},
            }
            status = {"status": {"allocation": {"devices": {"results": [result]}}}}
            await here.client.patch(
                ResourceClaim, "fast", MergePatch(status), "default", subresource="status"
            )
            gate.open()
            (told,) = await here.until(lambda: list_events(here, "DuplicateAllocation"), bool)
            assert (
                "capacity memory of device gpu.example.com/node-a/gpu-0: 6Gi asked, 4Gi left of 10Gi"
                in (told["message"])
            )
            assert (await here.held())["slow"] == []


async def test_an_allocation_of_a_scheduler_that_was_killed_is_checked_before_its_pod_is_bound(way, tmp_path):
    async with place(way, tmp_path, ledger=False) as here:
        await here.cluster(1, devices=2)
        await here.make(free("ours"), free("theirs"), pod("ours", by_name("ours")))
        await here.allocate("ours", "ours")
        await take(here, "theirs", "gpu-0")
        client, _ = open_stock_client(here)
        async with here.scheduling(client):
            await here.until_bound("ours")
        assert await here.held() == {"ours": ["node-a/gpu-1"], "theirs": ["node-a/gpu-0"]}


# --- who keeps the ledger ---


def test_the_names_of_the_guard_are_those_it_has():
    assert ledger_monitor.GUARD_CONFIGURATION == guard_options.CONFIGURATION_NAME
    assert ledger_monitor.GUARD_WEBHOOK == guard_options.WEBHOOK_NAME


def build_configuration(**webhook: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "dray-guard"},
        "webhooks": [
            {
                "name": "guard.dray.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"url": "https://127.0.0.1:1/validate"},
                "rules": [
                    {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["x"]}
                ],
                **webhook,
            }
        ],
    }


@pytest.mark.parametrize(
    ("webhook", "kind"),
    [
        ({}, LedgerKind.GUARD),
        ({"failurePolicy": "Ignore"}, LedgerKind.NONE),
        ({"name": "other.dray.dev"}, LedgerKind.NONE),
    ],
)
async def test_a_guard_counts_when_the_server_must_ask_it(tmp_path, webhook, kind):
    async with place("http", tmp_path) as here:
        transport = InterceptedTransport(here.reach._transport(""))
        transport.before = hide_dray
        client = type(here.client)(transport)
        here.reach._open.append(client)
        monitor = LedgerMonitor(client, build_silent_logger())
        await monitor.check()
        assert monitor.kind is LedgerKind.NONE
        await here.make(build_configuration(**webhook))
        await monitor.check()
        assert (monitor.kind, monitor.has_ledger) == (kind, kind is LedgerKind.GUARD)


async def test_a_scheduler_that_may_not_read_the_configuration_assumes_no_guard(tmp_path):
    async with place("http", tmp_path) as here:
        client, _ = open_stock_client(here)
        monitor = LedgerMonitor(client, build_silent_logger())
        await here.make(build_configuration())
        await monitor.check()
        assert monitor.kind is LedgerKind.NONE


async def test_on_our_own_server_nothing_is_checked_again(way, tmp_path):
    async with place(way, tmp_path) as here:
        await here.cluster(1, devices=1)
        await here.make(free("a"), pod("a", by_name("a")))
        async with here.scheduling() as scheduler:
            await here.until_bound("a")
            assert scheduler.ledger.kind is LedgerKind.SERVER
            rendered = scheduler.metrics.render().decode()
        assert 'dray_scheduler_ledger{kept_by="server"} 1.0' in rendered
        assert 'dray_scheduler_ledger{kept_by="none"} 0.0' in rendered
