"""A classic controller against a real server: phases, finalizers, failures, two of them."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import PENDING
from dray.client.client import Client
from dray.client.leases import LeaseTiming
from dray.driver.classic.controller import ClassicClaimAction, ClassicController, decide_action
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.classic.retries import ClassicRetryDelay
from dray.errors import InputError
from tests.contract.api import MERGE, path
from tests.contract.classic import CLAIMS, CLASSES, DRIVER
from tests.unit.driver.hardware import FINALIZER, TWO, Hardware, Units, World, is_allocated, run
from tests.unit.driver.served import served, until


@pytest.mark.req("K3063-151", "K3063-053")
def test_an_immediate_claim_is_allocated_where_there_is_room_and_held_by_a_finalizer() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one", mode="Immediate", size=2)
            claim = await world.until("one", is_allocated)
            assert claim.metadata.finalizers == (FINALIZER,)
            assert claim.status.driver_name == DRIVER
            reachable = claim.status.get_reachable_nodes()
            assert reachable is not None
            assert reachable.matches("node-a", {})
            assert not reachable.matches("node-b", {})
            await world.api.delete(f"{CLAIMS}/one")
            await until(world.names, lambda names: names == [])
        assert world.hardware.given == {}
        assert world.hardware.faults == []

    run(story)


@pytest.mark.req("K3063-151")
def test_claims_on_their_way_count_when_nodes_are_declined() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            for name in ("one", "two"):
                await world.ask(name)
            await world.select("one", "node-a", "node-a", "node-b")
            await world.until("one", is_allocated)
            await world.select("two", "node-a", "node-a", "node-b")

            def declined(claim: ClassicResourceClaim) -> bool:
                told = claim.status.scheduling
                return told is not None and told.driver.unsuitable_nodes == ("node-a",)

            await world.until("two", declined)
            await world.api.delete(f"{CLAIMS}/one")  # makes room
            await world.until("two", is_allocated)
        assert world.hardware.faults == []

    run(story)


def test_a_claim_to_be_freed_is_freed_and_allocated_anew_elsewhere() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one")
            await world.select("one", "node-a")
            await world.until("one", is_allocated)
            await world.api.patch(f"{CLAIMS}/one/status", {"status": {"phase": "Reallocate"}}, MERGE)
            freed = await world.until("one", lambda claim: claim.status.phase == PENDING)
            assert freed.status.attributes == {}
            await world.until("one", lambda claim: not claim.metadata.finalizers)
            await world.select("one", "node-b")
            claim = await world.until("one", is_allocated)
            assert claim.status.attributes == {"node": "node-b"}
        assert world.hardware.faults == []

    run(story)


@pytest.mark.req("K3063-028")
def test_parameters_are_checked_when_they_are_used_and_the_claim_says_what_is_wrong() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one", mode="Immediate", sice=2)
            told = await until(lambda: _told(world))
            assert "spec.parameters.sice: unknown field; did you mean `size`?" in told[0]
        assert (await world.claim("one")).metadata.finalizers == ()

    run(story)


async def _told(world: World) -> list[str]:
    events = await world.api.get(path("events"))
    return [event["message"] for event in events["items"]]


def test_what_an_author_raises_is_told_and_tried_again() -> None:
    async def story(world: World) -> None:
        world.units.broken = {"one"}
        async with world.controlled() as service:
            await world.ask("one", mode="Immediate")
            told = await until(lambda: _told(world))
            assert told == ["allocate failed: OSError: the cable is out"]
            world.units.broken = set()
            await world.until("one", is_allocated)
            text = service.metrics.render().decode()
            assert f'calls_total{{driver="{DRIVER}",method="allocate",result="error"}}' in text
        assert world.hardware.faults == []

    run(story)


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        (
            "allocate",
            None,
            "allocate failed: TypeError: it must return `ClassicAllocation` or `NoAllocationAvailable`, "
            "not `None`",
        ),
        ("allocate", sys.exit, "allocate failed: RuntimeError: it called sys.exit(None)"),
        (
            "unsuitable_nodes",
            None,
            "unsuitable_nodes failed: TypeError: it must return a collection of names, not `None`",
        ),
        (
            "unsuitable_nodes",
            "node-a",
            "unsuitable_nodes failed: TypeError: it must return a collection of names, not `'node-a'`",
        ),
    ],
)
def test_an_answer_that_is_none_is_told_and_does_not_end_the_controller(
    method: str, answer: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(world.units, method, lambda *_: answer() if callable(answer) else answer)
            async with world.controlled():
                await world.ask("one")
                await world.select("one", "node-a", "node-a", "node-b")
                assert await until(lambda: _told(world)) == [told]
        async with world.controlled():
            await world.until("one", is_allocated)
        assert world.hardware.faults == []

    run(story)


def test_a_claim_whose_class_went_away_still_gives_back_and_goes() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one", mode="Immediate")
            await world.until("one", is_allocated)
        await world.api.delete(f"{CLASSES}/acme")
        async with world.controlled():
            await world.api.delete(f"{CLAIMS}/one")
            await until(world.names, lambda names: names == [])
        assert world.hardware.given == {}

    run(story)


def test_a_claim_that_was_begun_and_whose_class_went_away_is_let_go() -> None:
    async def story(world: World) -> None:
        await world.ask("one", mode="Immediate")
        held = {"metadata": {"finalizers": [FINALIZER]}}  # as somebody left it who was killed then
        await world.api.patch(f"{CLAIMS}/one", held, MERGE)
        world.hardware.give((await world.claim("one")).metadata.uid, "node-a")
        await world.api.delete(f"{CLASSES}/acme")
        async with world.controlled():
            await world.until("one", lambda claim: not claim.metadata.finalizers)
        assert world.hardware.given == {}

    run(story)


def test_a_claim_that_somebody_tears_out_by_its_finalizers_is_taken_back_nevertheless() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one", mode="Immediate")
            await world.until("one", is_allocated)
            await world.api.delete(f"{CLAIMS}/one")
            if "one" in await world.names():
                await world.api.ask(
                    "PATCH",
                    f"{CLAIMS}/one",
                    {"metadata": {"finalizers": None}},
                    headers={"content-type": MERGE},
                )
            await until(lambda: _given(world), lambda given: given == {})

    run(story)


async def _given(world: World) -> dict[str, str]:
    return dict(world.hardware.given)


def test_an_immediate_claim_waits_until_another_is_given_back() -> None:
    async def story(world: World) -> None:
        async with world.controlled():
            await world.ask("one", mode="Immediate")
            await world.until("one", is_allocated)
            await world.ask("two", mode="Immediate")
            assert await until(lambda: _told(world)) == ["everything is taken"]
            await world.api.delete(f"{CLAIMS}/one")
            await world.until("two", is_allocated)
        assert world.hardware.faults == []

    run(story, {"node-a": 1})


def test_one_of_two_controllers_works_and_the_other_takes_over() -> None:
    async def story(world: World) -> None:
        for verb in ("clusterroles", "clusterrolebindings"):
            where = path(verb, group="rbac.authorization.k8s.io", namespace="")
            await world.api.create(_LEASES[verb], where)
        quick = LeaseTiming(0.6, 0.4, 0.05)
        first = ClassicControllerOptions(
            elect=True, identity="first", timing=quick, retry_delay=ClassicRetryDelay(0.01, 0.05)
        )
        second = ClassicControllerOptions(
            elect=True, identity="second", timing=quick, retry_delay=ClassicRetryDelay(0.01, 0.05)
        )
        async with world.controlled(choices=first) as leader:
            other = ClassicControllerService(Client(world.way()), world.units, second)
            task = asyncio.create_task(other.run())
            await world.ask("one", mode="Immediate")
            await world.until("one", is_allocated)
            assert leader.ready.is_set()
            assert not other.ready.is_set()
        await asyncio.wait_for(other.ready.wait(), 20)
        await world.ask("two", mode="Immediate")
        await world.until("two", is_allocated)
        task.cancel()
        await asyncio.wait([task])
        assert world.hardware.faults == []

    run(story)


_LEASES = {
    "clusterroles": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "leases"},
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "verbs": ["create", "get", "update", "patch"],
            }
        ],
    },
    "clusterrolebindings": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "leases"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "leases"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "classic-drivers"}],
    },
}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, ClassicClaimAction.NOTHING),
        ({"spec": {"allocationMode": "Immediate"}}, ClassicClaimAction.ALLOCATE),
        ({"spec": {"allocationMode": "Immediate"}, "deleting": True}, ClassicClaimAction.NOTHING),
        (
            {"spec": {"allocationMode": "Immediate"}, "deleting": True, "held": True},
            ClassicClaimAction.RELEASE,
        ),
        ({"held": True}, ClassicClaimAction.RELEASE),
        ({"status": {"scheduling": {"scheduler": {"potentialNodes": ["a"]}}}}, ClassicClaimAction.ANSWER),
        ({"status": {"scheduling": {"scheduler": {"selectedNode": "a"}}}}, ClassicClaimAction.ALLOCATE),
        ({"status": {"phase": "Allocated"}}, ClassicClaimAction.HOLD),
        ({"status": {"phase": "Allocated"}, "held": True}, ClassicClaimAction.NOTHING),
        ({"status": {"phase": "Allocated"}, "held": True, "deleting": True}, ClassicClaimAction.RELEASE),
        (
            {"status": {"phase": "Allocated", "reservedFor": [{"uid": "u"}]}, "held": True, "deleting": True},
            ClassicClaimAction.NOTHING,
        ),
        ({"status": {"phase": "Reallocate"}, "held": True}, ClassicClaimAction.RELEASE),
    ],
)
def test_what_is_due_follows_from_the_claim_alone(changes: dict[str, Any], what: ClassicClaimAction) -> None:
    metadata: dict[str, Any] = {"name": "c"}
    if changes.get("deleting"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if changes.get("held"):
        metadata["finalizers"] = [FINALIZER]
    document = {"metadata": metadata, "spec": changes.get("spec", {}), "status": changes.get("status", {})}
    assert decide_action(msgspec.convert(document, ClassicResourceClaim), FINALIZER) is what


def test_a_controller_without_client_or_name_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="needs a client"):
        ClassicControllerService(None, Units(Hardware(TWO)))  # type: ignore[arg-type]

    async def nameless() -> None:
        async with served() as world:
            with pytest.raises(InputError, match="not the name of a driver"):
                ClassicControllerService(world.admin, ClassicController())

    asyncio.run(nameless())
