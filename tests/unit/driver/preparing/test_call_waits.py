"""Calls to prepare that wait inside of the call for what will pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.client.errors import ForbiddenError
from dray.client.transport import TransportRequest
from dray.driver import Claim, TryAgainError
from dray.driver import metrics as m
from dray.driver.preparing import call_waits
from dray.driver.preparing.call_waits import MAX_WAIT_SECONDS, CallWaits
from dray.driver.preparing.claim_conversion import PrepareDelayedError
from dray.driver.service.grpc_servers import build_socket_paths
from dray.wire.grpc_services import DRA_V1, GrpcStub
from dray.wire.unix_sockets import open_channel
from tests.unit.driver.driver_node import DRIVER, AgentClient, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until

LATE = "dray.driver.preparing.prepared_claims.LATE_CALL_SECONDS"


@asynccontextmanager
async def _open_patient_driver(gpu: Gpu) -> AsyncIterator[tuple[DriverNode, AgentClient]]:
    async with (
        open_driver_node() as node,
        node.run_driver(gpu, max_wait_seconds=MAX_WAIT_SECONDS) as agent,
    ):
        yield node, agent


async def _now(value: Any) -> Any:
    return value


def _count_waiting(agent: AgentClient) -> float:
    line = f'{m.WAITING_CLAIMS}{{driver="{DRIVER}"}} '
    (found,) = [each for each in agent.service.metrics.render().decode().splitlines() if line in each]
    return float(found.removeprefix(line))


async def _until_waiting(agent: AgentClient, count: int = 1) -> None:
    await wait_until(lambda: _now(_count_waiting(agent)), lambda waiting: waiting == count)


def _count_reads(node: DriverNode, name: str) -> int:
    where = f"/resourceclaims/{name}"
    return sum(each.method == "GET" and each.path.endswith(where) for each in node.transport.requests)


async def _prepare(agent: AgentClient, uid: str, name: str, timeout: float) -> Any:
    """Prepare a claim with another time limit than usual; cancelling this cancels the call."""
    message = DRA_V1.get_message_class("Claim")(namespace="default", name=name, uid=uid)
    request = DRA_V1.methods["NodePrepareResources"].request(claims=[message])
    reply = await GrpcStub(agent.endpoint, DRA_V1).call("NodePrepareResources", request, timeout=timeout)
    return reply.claims[uid]


# --- what will pass ---


def test_a_device_that_is_held_is_prepared_in_the_same_call_when_it_is_given_back() -> None:
    async def scenario() -> None:
        gpu = Gpu()
        async with _open_patient_driver(gpu) as (node, agent):
            first = await node.create_claim("first")
            await agent.prepare_ok(first, "first")
            await node.remove_claim("first")  # by force: the agent unprepares it later
            second = await node.create_claim("second")
            waiting = asyncio.create_task(agent.prepare_ok(second, "second"))
            await _until_waiting(agent)
            assert "a claim waits" in node.log_text
            assert gpu.calls == [("prepare", "first")]
            await agent.unprepare_ok(first, "first")
            assert await waiting
            assert gpu.calls == [("prepare", "first"), ("unprepare", "first"), ("prepare", "second")]
            assert _count_waiting(agent) == 0

    asyncio.run(scenario())


def test_a_shared_claim_that_was_just_given_back_is_prepared_again_in_the_same_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        gpu = Gpu()
        async with _open_patient_driver(gpu) as (node, agent):
            uid = await node.create_claim("c", users=("pod-1", "pod-2"))
            await agent.prepare_ok(uid, "c")
            await agent.unprepare_ok(uid, "c")
            monkeypatch.setattr(LATE, 1.5)
            assert await agent.prepare_ok(uid, "c")
            assert "this call comes too late" in node.log_text
            assert [what for what, _ in gpu.calls] == ["prepare", "unprepare", "prepare"]

    asyncio.run(scenario())


def test_an_api_that_is_away_for_a_moment_delays_a_call() -> None:
    async def scenario() -> None:
        async with _open_patient_driver(Gpu()) as (node, agent):
            uid = await node.create_claim("c")
            inner, node.transport.inner = node.transport.inner, None
            waiting = asyncio.create_task(agent.prepare_ok(uid, "c"))
            await _until_waiting(agent)
            node.transport.inner = inner
            assert await waiting

    asyncio.run(scenario())


def test_a_claim_that_the_server_does_not_show_yet_delays_a_call() -> None:
    async def scenario() -> None:
        async with _open_patient_driver(Gpu()) as (node, agent):
            uid = await node.create_claim("c")
            lagging = node.server.connect()
            async with open_driver_node() as other:
                lagging.inner, node.transport.inner = node.transport.inner, other.server.connect()
                waiting = asyncio.create_task(agent.prepare_ok(uid, "c"))
                await wait_until(lambda: _now("there is no such claim" in node.log_text))
                node.transport.inner = lagging.inner
                assert await waiting

    asyncio.run(scenario())


def test_an_author_may_ask_to_be_called_again() -> None:
    async def scenario() -> None:
        gpu = Gpu()

        def reset_twice(what: str, _claim: Claim) -> None:
            if what == "prepare" and len(gpu.received) < 3:
                raise TryAgainError("the device is being reset")

        gpu.on_call = reset_twice
        async with _open_patient_driver(gpu) as (node, agent):
            uid = await node.create_claim("c")
            assert await agent.prepare_ok(uid, "c")
            assert [what for what, _ in gpu.calls] == ["prepare"] * 3
            assert "the driver says to try again: the device is being reset" in node.log_text

    asyncio.run(scenario())


# --- what will not pass ---


def test_errors_that_waiting_does_not_mend_fail_at_once() -> None:
    async def scenario() -> None:
        gpu = Gpu()

        def fail(_what: str, claim: Claim) -> None:
            raise ValueError(f"{claim.name} is broken")

        gpu.on_call = fail
        async with _open_patient_driver(gpu) as (node, agent):
            uid = await node.create_claim("c")
            assert "ValueError: c is broken" in await agent.expect_refusal(uid, "c")
            assert len(gpu.calls) == 1
            opaque = {"driver": DRIVER, "parameters": {"unknown": 1}}
            config = [{"source": "FromClaim", "requests": [], "opaque": opaque}]
            results = [{"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-1"}]
            bad = await node.create_allocated_claim("bad", results, config=config)
            assert "config[0].opaque.parameters" in await agent.expect_refusal(bad, "bad")
            assert (len(gpu.calls), _count_reads(node, "bad")) == (1, 1)
            node.transport.before = _forbid_claims
            other = await node.create_claim("other", "gpu-2")
            assert "cannot read it: not yours" in await agent.expect_refusal(other, "other")
            assert _count_reads(node, "other") == 1

    asyncio.run(scenario())


def _forbid_claims(request: TransportRequest) -> None:
    if "resourceclaims" in request.path:
        raise ForbiddenError(403, {"message": "not yours"})


def test_a_late_call_is_refused_at_once_when_its_time_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(LATE, 3600.0)
        async with _open_patient_driver(Gpu()) as (node, agent):
            uid = await node.create_claim("c")
            await agent.prepare_ok(uid, "c")
            await agent.unprepare_ok(uid, "c")
            before = _count_reads(node, "c")
            assert "this call comes too late" in await agent.expect_refusal(uid, "c")
            assert _count_reads(node, "c") == before + 1

    asyncio.run(scenario())


# --- the end of a wait ---


def test_a_call_ends_before_its_deadline_with_what_it_waited_for() -> None:
    async def scenario() -> None:
        async with _open_patient_driver(Gpu()) as (node, agent):
            held, uid = await node.create_claim("held"), await node.create_claim("c", "gpu-1")
            await agent.prepare_ok(held, "held")
            await node.remove_claim("held")
            second = await node.create_claim("second")
            reply = await _prepare(agent, second, "second", timeout=6.0)
            assert "device `gpu-0` of pool `node-a` is held by claim `default/held`" in reply.error
            assert reply.error.endswith("s for that)")
            assert await agent.prepare_ok(uid, "c")

    asyncio.run(scenario())


def test_a_call_whose_caller_hung_up_prepares_nothing_any_more() -> None:
    async def scenario() -> None:
        gpu = Gpu()
        async with _open_patient_driver(gpu) as (node, agent):
            held = await node.create_claim("held")
            await agent.prepare_ok(held, "held")
            await node.remove_claim("held")
            second = await node.create_claim("second")
            waiting = asyncio.create_task(_prepare(agent, second, "second", timeout=40.0))
            await _until_waiting(agent)
            waiting.cancel()
            await _until_waiting(agent, 0)
            await agent.unprepare_ok(held, "held")
            assert gpu.calls == [("prepare", "held"), ("unprepare", "held")]
            assert node.cdi() == {}

    asyncio.run(scenario())


def test_a_driver_that_ends_answers_calls_that_wait() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            running = node.run_driver(max_wait_seconds=MAX_WAIT_SECONDS)
            agent = await running.__aenter__()
            held = await node.create_claim("held")
            await agent.prepare_ok(held, "held")
            await node.remove_claim("held")
            second = await node.create_claim("second")
            paths = build_socket_paths(DRIVER, node.options.plugins, node.options.registry)
            async with open_channel(paths.endpoint) as channel:
                caller = AgentClient(agent.service, channel, channel)
                waiting = asyncio.create_task(_prepare(caller, second, "second", timeout=40.0))
                await _until_waiting(agent)
                await running.__aexit__(None, None, None)
                assert "held by claim `default/held`" in (await waiting).error

    asyncio.run(scenario())


def test_a_claim_can_be_unprepared_while_a_call_to_prepare_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(LATE, 3600.0)
        gpu = Gpu()

        def never(what: str, _claim: Claim) -> None:
            if what == "prepare":
                raise TryAgainError("not yet")

        gpu.on_call = never
        async with _open_patient_driver(gpu) as (node, agent):
            uid = await node.create_claim("c")
            waiting = asyncio.create_task(agent.expect_refusal(uid, "c"))
            await _until_waiting(agent)
            await agent.unprepare_ok(uid, "c")
            assert "this call comes too late" in await waiting
            assert gpu.calls[-1] == ("unprepare", "c")
            assert not list((node.state / "prepared").iterdir())

    asyncio.run(scenario())


def test_many_calls_that_wait_do_not_keep_a_device_from_being_given_back() -> None:
    count = 120  # more than a process has threads for the author and for files

    async def scenario() -> None:
        gpu = Gpu()
        async with _open_patient_driver(gpu) as (node, agent):
            held = await node.create_claim("held")
            await agent.prepare_ok(held, "held")
            await node.remove_claim("held")
            uid = await node.create_claim("c")
            waiting = [asyncio.create_task(_prepare(agent, uid, "c", timeout=60.0)) for _ in range(count)]
            await wait_until(lambda: _now(_count_reads(node, "c")), lambda reads: reads >= count)
            await agent.unprepare_ok(held, "held")
            replies = await asyncio.gather(*waiting)
            assert {each.error for each in replies} == {""}
            assert gpu.calls.count(("prepare", "c")) == 1

    asyncio.run(scenario())


def test_the_number_of_waiting_claims_and_their_time_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        waits, delay = CallWaits(), PrepareDelayedError("held")
        spans = {given: waits.begin_call(given) for given in (45.0, 6.0, None, 600.0)}
        assert {given: each.wait_until - each.started_at for given, each in spans.items()} == pytest.approx(
            {45.0: 30.0, 6.0: 4.0, None: MAX_WAIT_SECONDS, 600.0: MAX_WAIT_SECONDS}
        )
        monkeypatch.setattr(call_waits, "MAX_WAITING_CLAIMS", 1)
        first = asyncio.create_task(waits.wait(spans[45.0], delay))
        await wait_until(lambda: _now(waits.count), lambda count: count == 1)
        assert not await waits.wait(spans[45.0], delay)
        waits.notify_change()
        assert await first
        spans[45.0].hung_up = True
        assert not await waits.wait(spans[45.0], delay)
        assert not await waits.wait(waits.begin_call(0.0), delay)
        waits.stop()
        assert not await waits.wait(waits.begin_call(45.0), delay)

    asyncio.run(scenario())
