"""Webhooks that hang, crash or answer badly: the failure policy, timeouts and logs."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from dray.api.json_text import write_json
from dray.server.admission.webhooks import dispatch, webhook_client
from dray.store import Put
from dray.store.memory import MemoryStore
from tests.contract.api import keys
from tests.contract.documents import claim, config
from tests.contract.hooked import GROUP, Answer, World, hanging, hooked, soon, tried

Entry = dict[str, Any]
FAILED = 'Internal error occurred: failed calling webhook "check.example.com": '
COUNTED = "dray_webhook_requests_total"


def says(text: str, status: int = 200) -> Callable[[Any], web.Response]:
    return lambda _asked: web.Response(text=text, status=status)


def elsewhere(**fields: Any) -> Callable[[World], Entry]:
    """A webhook that is configured in another way."""

    def entry(world: World) -> Entry:
        usual = world.entry()
        return {**usual, "clientConfig": {**usual["clientConfig"], **fields}}

    return entry


def usual(world: World) -> Entry:
    return world.entry()


def stranger() -> str:
    """A certificate authority other than that of the webhook."""
    from dray.server.auth.authn.certificates import CertificateAuthority

    return base64.b64encode(CertificateAuthority.open(keys(), ("localhost",)).ca_pem).decode()


TROUBLES: dict[str, tuple[Callable[[World], Entry], Answer | None, str]] = {
    "nonsense": (usual, says("<html>"), "its answer is not JSON"),
    "another kind": (usual, says('{"kind":"Status"}'), "expected webhook response of admission.k8s.io/v1"),
    "another uid": (usual, lambda _asked: {"uid": "other", "allowed": True}, "expected response.uid="),
    "no word": (usual, lambda _asked: {}, "response.allowed must be true or false"),
    "broken": (usual, says("I am\nbroken", 500), "answers 500: I am broken"),
    "moved": (usual, lambda _asked: web.Response(status=302, headers={"location": "/x"}), "answers 302"),
    "nobody": (elsewhere(url="https://127.0.0.1:1/check"), None, "cannot be asked: connection refused"),
    "stranger": (
        lambda world: elsewhere(caBundle=stranger())(world),
        None,
        "a certificate that is not trusted",
    ),
    "no bundle": (elsewhere(caBundle="Cg=="), None, "a certificate that is not trusted"),
    "bad bundle": (elsewhere(caBundle="YWJj"), None, "its caBundle holds no certificates that can be read"),
}


@pytest.mark.parametrize("trouble", sorted(TROUBLES))
def test_a_failing_webhook_follows_the_failure_policy(trouble):
    entry, answer, why = TROUBLES[trouble]

    async def scenario() -> None:
        async with hooked() as world:
            if answer is not None:
                world.hook.on("/check", answer)
            made = entry(world)
            await world.configure("validating", "c", made)
            response = await tried(world, claim("a"))
            assert (response.code, response.reason) == (500, "InternalError")
            assert response.message.startswith(FAILED)
            assert why in response.message
            assert await world.metric(COUNTED, 'outcome="failed"') == 1
            stored = await world.api.get(
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c"
            )
            stored["webhooks"][0]["failurePolicy"] = "Ignore"
            await world.api.put(
                stored, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/c"
            )
            assert (await tried(world, claim("a"))).code == 201
            assert await world.metric(COUNTED, 'outcome="ignored"') == 1
            warnings = [line for line in world.lines if "an admission webhook could not be called" in line]
            assert len(warnings) == 2
            assert why in warnings[0]

    asyncio.run(scenario())


def test_a_hanging_webhook_times_out():
    async def scenario() -> None:
        async with hooked() as world:
            never = asyncio.Event()
            world.hook.on("/strict", hanging(never))
            world.hook.on("/lax", hanging(never))
            await world.configure(
                "validating", "a", world.entry("/lax", failurePolicy="Ignore", timeoutSeconds=1)
            )
            assert (await tried(world, claim("a"))).code == 201
            await world.configure("validating", "b", world.entry("/strict", timeoutSeconds=1))
            response = await tried(world, claim("b"))
            assert response.code == 500
            assert 'failed calling webhook "strict.example.com": no answer from https://' in response.message
            assert response.message.endswith("within 1 seconds")
            never.set()

    asyncio.run(scenario())


def test_all_webhooks_of_a_request_share_a_deadline(monkeypatch):
    monkeypatch.setattr(dispatch, "TOTAL_TIMEOUT", 0.3)

    async def scenario() -> None:
        async with hooked() as world:

            async def slow(_asked: Any) -> dict[str, Any]:
                await asyncio.sleep(0.35)
                return {"allowed": True}

            world.hook.on("/one", slow)
            await world.configure(
                "mutating", "c", world.entry("/one", failurePolicy="Ignore"), world.entry("/two")
            )
            response = await tried(world, claim("a"))
            assert (response.code, response.reason) == (504, "Timeout")
            assert world.hook.requests("/two") == []

    asyncio.run(scenario())


def test_a_webhook_with_side_effects_refuses_dry_runs():
    """Validation refuses such a configuration, but older servers stored it."""

    async def scenario() -> None:
        store = MemoryStore()
        async with hooked(store) as world:
            kind = {"apiVersion": f"{GROUP}/v1", "kind": "ValidatingWebhookConfiguration"}
            metadata = {"name": "c", "uid": "u", "creationTimestamp": "2026-01-31T12:00:00Z"}
            document = {**kind, "metadata": metadata, "webhooks": [world.entry(sideEffects="Some")]}
            place = f"/registry/{GROUP}/validatingwebhookconfigurations/c".encode()
            await store.txn([], [Put(place, write_json(document))])
            response = await tried(world, claim("a"), dryRun="All")
            assert (response.code, response.reason) == (400, "BadRequest")
            assert response.message == 'admission webhook "check.example.com" does not support dry run'
            assert (await tried(world, claim("a"))).code == 201
            assert world.hook.order == ["/check"]
        await store.close()

    asyncio.run(scenario())


def test_an_endless_webhook_response_is_aborted(monkeypatch):
    monkeypatch.setattr(webhook_client, "MAX_RESPONSE_BYTES", 100_000)

    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/check", says(" " * 200_000))
            await world.configure("validating", "c", world.entry())
            response = await tried(world, claim("a"))
            assert "answers more than 100000 bytes" in response.message

    asyncio.run(scenario())


def test_a_hanging_webhook_does_not_take_all_slots(monkeypatch):
    monkeypatch.setattr(webhook_client, "MAX_PENDING_CALLS", 2)

    async def scenario() -> None:
        async with hooked() as world:
            never = asyncio.Event()
            world.hook.on("/check", hanging(never))
            await world.configure("validating", "c", world.entry())
            waiting = [asyncio.create_task(tried(world, claim(name))) for name in ("a", "b")]
            await soon(lambda: len(world.hook.asked) == 2)
            response = await tried(world, claim("c"))
            assert response.code == 500
            assert "2 requests wait for" in response.message
            never.set()
            assert [(await each).code for each in waiting] == [201, 201]
            assert (await tried(world, claim("d"))).code == 201

    asyncio.run(scenario())


def test_a_disconnected_client_cancels_the_webhook_call():
    async def scenario() -> None:
        async with hooked() as world:
            never = asyncio.Event()
            world.hook.on("/check", hanging(never))
            await world.configure("validating", "c", world.entry())
            leaving = asyncio.create_task(tried(world, claim("a")))
            await soon(lambda: len(world.hook.asked) == 1)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            never.set()
            assert (await tried(world, claim("a"))).code == 201

    asyncio.run(scenario())


def test_a_closed_webhook_connection_is_opened_again():
    async def scenario() -> None:
        async with hooked() as world:
            await world.configure("validating", "c", world.entry())
            assert (await tried(world, claim("a"))).code == 201
            world.hook.hangs_up = True
            assert (await tried(world, claim("b"))).code == 201
            assert len(world.hook.connections) == 2

    asyncio.run(scenario())


def test_contents_of_objects_are_in_no_line_of_the_log():
    async def scenario() -> None:
        async with hooked() as world:
            world.hook.on("/check", says("no", 500))
            rule = {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["*"],
                "resources": ["configmaps"],
            }
            await world.configure("validating", "c", world.entry(rules=[rule]))
            document = config("a")
            document["data"]["key"] = "hunter2"
            assert (await tried(world, document)).code == 500
            assert [line for line in world.lines if "hunter2" in line] == []
            assert "hunter2" not in world.audit.read_text()

    asyncio.run(scenario())
