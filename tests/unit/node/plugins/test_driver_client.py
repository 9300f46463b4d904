"""Driver clients: versions, batches, status codes, and drivers that do not reply."""

from __future__ import annotations

import asyncio

import grpc
import msgspec
import pytest

from dray.node import agent_metrics
from dray.node.plugins import driver_replies
from dray.node.plugins.driver_client import DriverCallOptions, PluginRegistration, build_driver_client
from dray.node.plugins.driver_interface import (
    MISSING_ENTRY,
    ClaimRef,
    DriverCallFailure,
    DriverCallFault,
    DriverClient,
    PreparedDevice,
)
from dray.node.plugins.driver_replies import sanitize_text, shorten_health_message
from dray.wire import grpc_services, unix_sockets
from tests.e2e.plain_driver import PlainDriver
from tests.e2e.plain_messages import CLASSIC, DRA, HEALTH
from tests.unit.node.registry_harness import NAME, RegistryHarness, open_registry_harness

V1, V1BETA1 = DRA.format("v1"), DRA.format("v1beta1")
A, B, C = (ClaimRef("default", name, f"uid-{name}") for name in "abc")


async def reached(here: RegistryHarness, driver: PlainDriver) -> DriverClient:
    await here.registered(driver.ways.name)
    found = here.registry.find_driver(driver.ways.name)
    assert found is not None
    return found


def device(claim: ClaimRef) -> PreparedDevice:
    return PreparedDevice(pool=NAME, device="dev-0", cdi=(f"{NAME}/plain={claim.uid}-dev-0",))


def test_claims_are_prepared_and_unprepared_in_one_call() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            assert await to.prepare([A, B]) == {A.uid: (device(A),), B.uid: (device(B),)}
            assert sorted(driver.prepared) == [A.uid, B.uid]
            assert await to.unprepare([A, B]) == {A.uid: None, B.uid: None}
            assert driver.prepared == {}
            both = (A.uid, B.uid)
            assert driver.calls == [
                (f"{V1}/NodePrepareResources", both),
                (f"{V1}/NodeUnprepareResources", both),
            ]
            assert await to.prepare([]) == {}
            assert len(driver.calls) == 2

    asyncio.run(run())


@pytest.mark.parametrize(("service", "share"), [(V1, "share-1"), (V1BETA1, "")])
def test_the_share_of_a_device_is_read_where_the_protocol_has_it(service: str, share: str) -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways(versions=("v1.DRAPlugin", "v1beta1.DRAPlugin")))
            driver.services, driver.shares = (service,), {"dev-0": "share-1"}
            to = await reached(here, await here.started(driver))
            assert await to.prepare([A]) == {A.uid: (msgspec.structs.replace(device(A), share_id=share),)}

    asyncio.run(run())


def test_what_is_too_much_for_one_call_becomes_several() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with unix_sockets.open_channel(driver.ways.socket()) as channel:
                to = build_driver_client(
                    PluginRegistration(NAME, False, (grpc_services.DRA_V1,)),
                    channel,
                    DriverCallOptions(max_claims=2),
                )
                outcomes = await to.prepare([A, B, C])
            assert list(outcomes) == [A.uid, B.uid, C.uid]
            assert [uids for _, uids in driver.calls] == [(A.uid, B.uid), (C.uid,)]

    asyncio.run(run())


def test_a_driver_without_v1_is_asked_in_v1beta1_and_not_in_v1_again() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways())
            driver.services = (V1BETA1,)
            to = await reached(here, await here.started(driver))
            for _ in range(2):
                assert await to.prepare([A]) == {A.uid: (device(A),)}
            assert [method for method, _ in driver.calls] == [f"{V1BETA1}/NodePrepareResources"] * 2
            counted = {
                (sample.labels["method_name"], sample.labels["grpc_status_code"]): sample.value
                for family in here.metrics.collect()
                for sample in family.samples
                if sample.name == f"{agent_metrics.CALL_SECONDS}_count"
            }
            assert counted == {
                (f"/{V1}/NodePrepareResources", "UNIMPLEMENTED"): 1,
                (f"/{V1BETA1}/NodePrepareResources", "OK"): 2,
            }

    asyncio.run(run())


def test_a_driver_that_implements_none_of_its_services_is_a_failure() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways())
            driver.services = (CLASSIC,)
            to = await reached(here, await here.started(driver))
            for _ in range(2):
                outcome = (await to.prepare([A]))[A.uid]
                assert isinstance(outcome, DriverCallFailure)
                assert outcome.fault is DriverCallFault.NOT_SPOKEN

    asyncio.run(run())


def test_each_claim_has_its_own_outcome() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            driver.errors[B.uid] = "no such device:\n\tTraceback ..."
            driver.left_out.add(C.uid)
            error = DriverCallFailure(
                DriverCallFault.REFUSED, f"driver `{NAME}`: no such device: Traceback ..."
            )
            missing = DriverCallFailure(DriverCallFault.REFUSED, f"driver `{NAME}`: {MISSING_ENTRY}")
            assert await to.prepare([A, B, C]) == {A.uid: (device(A),), B.uid: error, C.uid: missing}
            assert await to.unprepare([A, B, C]) == {A.uid: None, B.uid: error, C.uid: missing}

    asyncio.run(run())


def test_a_name_that_no_runtime_would_take_is_an_error_of_the_driver() -> None:
    assert driver_replies.check_cdi_names(NAME, (PreparedDevice(cdi=("gpu",)),)) == DriverCallFailure(
        DriverCallFault.REFUSED,
        f"driver `{NAME}`: `gpu` is no name of a CDI device: expected `vendor/class=device`",
    )


@pytest.mark.parametrize(
    ("code", "fault", "text"),
    [
        (grpc.StatusCode.INTERNAL, DriverCallFault.REFUSED, f"driver `{NAME}`: it broke (INTERNAL)"),
        (grpc.StatusCode.NOT_FOUND, DriverCallFault.NOT_FOUND, f"driver `{NAME}`: it broke (NOT_FOUND)"),
        (
            grpc.StatusCode.UNAVAILABLE,
            DriverCallFault.NO_ANSWER,
            f"driver `{NAME}` cannot be reached: it broke",
        ),
        (grpc.StatusCode.CANCELLED, DriverCallFault.NO_ANSWER, f"driver `{NAME}`: it broke (CANCELLED)"),
    ],
)
def test_a_call_that_fails_fails_for_all_its_claims(
    code: grpc.StatusCode, fault: DriverCallFault, text: str
) -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            driver.fails["NodePrepareResources"] = (code, "it broke")
            failure = DriverCallFailure(fault, text)
            assert await to.prepare([A, B]) == {A.uid: failure, B.uid: failure}
            assert await to.unprepare([A]) == {A.uid: None}

    asyncio.run(run())


def test_a_hanging_driver_delays_no_other() -> None:
    async def run() -> None:
        async with open_registry_harness(timeout=3.0) as here:
            slow, quick = await here.driver("slow.example.com"), await here.driver()
            slow.hangs.add("NodePrepareResources")
            to_slow, to_quick = await reached(here, slow), await reached(here, quick)
            waiting = asyncio.create_task(to_slow.prepare([A]))
            assert await to_quick.prepare([B]) == {B.uid: (device(B),)}
            assert not waiting.done()
            text = "driver `slow.example.com` did not answer within 3 s"
            assert await waiting == {A.uid: DriverCallFailure(DriverCallFault.NO_ANSWER, text)}
            slow.hangs.clear()
            outcome = (await to_slow.prepare([A]))[A.uid]
            assert isinstance(outcome, tuple)

    asyncio.run(run())


def test_a_driver_that_ends_under_a_call_gave_no_answer() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            driver.hangs.add("NodePrepareResources")
            waiting = asyncio.create_task(to.prepare([A]))
            await asyncio.sleep(0.1)
            await driver.stop()
            outcome = (await waiting)[A.uid]
            assert isinstance(outcome, DriverCallFailure)
            assert outcome.fault is DriverCallFault.NO_ANSWER

    asyncio.run(run())


def test_a_line_that_is_closed_under_a_call_cancels_the_call_and_not_the_caller() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            driver.hangs.add("NodePrepareResources")
            waiting = asyncio.create_task(to.prepare([A]))
            await asyncio.sleep(0.1)
            await here.registry.close()
            assert await waiting == {
                A.uid: DriverCallFailure(
                    DriverCallFault.NO_ANSWER, f"driver `{NAME}`: the connection was closed (CANCELLED)"
                )
            }

    asyncio.run(run())


def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            to = await reached(here, driver)
            driver.hangs.add("NodePrepareResources")
            waiting = asyncio.create_task(to.prepare([A]))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(run())


@pytest.mark.req("K3063-129", "K3063-131", "K3063-141")
def test_a_classic_driver_is_asked_claim_by_claim_and_answers_with_codes() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver(type="ResourcePlugin", versions=())
            to = await reached(here, driver)
            names = {claim: (f"{NAME}/plain={claim.uid}-dev-0",) for claim in (A, B)}
            assert await to.prepare([A, B]) == {
                claim.uid: (PreparedDevice(cdi=cdi),) for claim, cdi in names.items()
            }
            given = ClaimRef(A.namespace, A.name, A.uid, names[A])
            assert await to.unprepare([given]) == {A.uid: None}
            assert sorted(driver.calls) == [
                (f"{CLASSIC}/NodePrepareResource", (A.uid,)),
                (f"{CLASSIC}/NodePrepareResource", (B.uid,)),
                (f"{CLASSIC}/NodeUnprepareResource", (A.uid, *names[A])),
            ]
            for method in ("NodePrepareResource", "NodeUnprepareResource"):
                driver.fails[method] = (grpc.StatusCode.NOT_FOUND, "who?")
            unknown = DriverCallFailure(DriverCallFault.NOT_FOUND, f"driver `{NAME}`: who? (NOT_FOUND)")
            assert await to.prepare([A]) == {A.uid: unknown}
            assert await to.unprepare([A]) == {A.uid: unknown}

    asyncio.run(run())


def test_health_is_read_in_the_version_that_there_is() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            versions = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
            driver = PlainDriver(here.ways(versions=versions))
            driver.services = (V1, HEALTH.format("v1alpha1"))
            to = await reached(here, await here.started(driver))
            driver.health.put_nowait([("pool", "dev-0", 2, 7, "too hot")])
            driver.health.put_nowait(None)
            stream = to.watch_health()
            assert stream is not None
            ((seen,),) = [states async for states in stream]
            told = (seen.device, seen.health, seen.timeout, seen.message)
            assert told == ("dev-0", "Unhealthy", 7.0, "too hot")

    asyncio.run(run())


def test_a_driver_that_offers_no_health_has_none() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            to = await reached(here, await here.driver(versions=("v1.DRAPlugin",)))
            assert to.watch_health() is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\r\n\tand a tab", "two lines and a tab"),
        ("\x1b[31mred\x00\x7f", "[31mred"),
        ("right\u202eto left", "right to left"),
        ("größe ≥ 5", "größe ≥ 5"),
        ("x" * 300, "x" * 239 + "…"),
    ],
)
def test_what_drivers_say_is_shown_on_one_line(text: str, shown: str) -> None:
    assert sanitize_text(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "..."),
        ("ä" * 1000, "ä" * 510 + "..."),
    ],
)
def test_a_health_message_is_as_long_as_a_pod_status_may_have_it(text: str, shown: str) -> None:
    assert shorten_health_message(text) == shown
