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
from tests.unit.driver.classic.classic_cluster import (
    FINALIZER,
    TWO,
    ClassicCluster,
    Hardware,
    Units,
    is_allocated,
    run,
)
from tests.unit.driver.driver_server import serve_for_drivers, wait_until


@pytest.mark.req("K3063-151", "K3063-053")
def test_an_immediate_claim_is_allocated_on_a_node_with_a_free_unit_and_held_by_a_finalizer() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one", mode="Immediate", size=2)
            claim = await cluster.wait_until("one", is_allocated)
            assert claim.metadata.finalizers == (FINALIZER,)
            assert claim.status.driver_name == DRIVER
            reachable = claim.status.get_reachable_nodes()
            assert reachable is not None
            assert reachable.matches("node-a", {})
            assert not reachable.matches("node-b", {})
            await cluster.api.delete(f"{CLAIMS}/one")
            await wait_until(cluster.names, lambda names: names == [])
        assert cluster.hardware.given == {}
        assert cluster.hardware.faults == []

    run(scenario)


@pytest.mark.req("K3063-151")
def test_claims_on_their_way_count_when_nodes_are_declined() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            for name in ("one", "two"):
                await cluster.create_claim(name)
            await cluster.select("one", "node-a", "node-a", "node-b")
            await cluster.wait_until("one", is_allocated)
            await cluster.select("two", "node-a", "node-a", "node-b")

            def declined(claim: ClassicResourceClaim) -> bool:
                scheduling = claim.status.scheduling
                return scheduling is not None and scheduling.driver.unsuitable_nodes == ("node-a",)

            await cluster.wait_until("two", declined)
            await cluster.api.delete(f"{CLAIMS}/one")  # frees a unit
            await cluster.wait_until("two", is_allocated)
        assert cluster.hardware.faults == []

    run(scenario)


def test_a_claim_to_be_reallocated_is_deallocated_and_allocated_elsewhere() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one")
            await cluster.select("one", "node-a")
            await cluster.wait_until("one", is_allocated)
            await cluster.api.patch(f"{CLAIMS}/one/status", {"status": {"phase": "Reallocate"}}, MERGE)
            freed = await cluster.wait_until("one", lambda claim: claim.status.phase == PENDING)
            assert freed.status.attributes == {}
            await cluster.wait_until("one", lambda claim: not claim.metadata.finalizers)
            await cluster.select("one", "node-b")
            claim = await cluster.wait_until("one", is_allocated)
            assert claim.status.attributes == {"node": "node-b"}
        assert cluster.hardware.faults == []

    run(scenario)


@pytest.mark.req("K3063-028")
def test_invalid_parameters_are_reported_as_an_event_on_the_claim() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one", mode="Immediate", sice=2)
            expected = await wait_until(lambda: list_event_notes(cluster))
            assert "spec.parameters.sice: unknown field; did you mean `size`?" in expected[0]
        assert (await cluster.claim("one")).metadata.finalizers == ()

    run(scenario)


async def list_event_notes(cluster: ClassicCluster) -> list[str]:
    events = await cluster.api.get(path("events"))
    return [event["message"] for event in events["items"]]


def test_an_exception_of_the_author_is_reported_and_retried() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        cluster.units.broken = {"one"}
        async with cluster.run_controller() as service:
            await cluster.create_claim("one", mode="Immediate")
            expected = await wait_until(lambda: list_event_notes(cluster))
            assert expected == ["allocate failed: OSError: the cable is out"]
            cluster.units.broken = set()
            await cluster.wait_until("one", is_allocated)
            text = service.metrics.render().decode()
            assert f'calls_total{{driver="{DRIVER}",method="allocate",result="error"}}' in text
        assert cluster.hardware.faults == []

    run(scenario)


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
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
def test_an_invalid_result_is_reported_and_does_not_end_the_controller(
    method: str, answer: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(cluster.units, method, lambda *_: answer() if callable(answer) else answer)
            async with cluster.run_controller():
                await cluster.create_claim("one")
                await cluster.select("one", "node-a", "node-a", "node-b")
                assert await wait_until(lambda: list_event_notes(cluster)) == [expected]
        async with cluster.run_controller():
            await cluster.wait_until("one", is_allocated)
        assert cluster.hardware.faults == []

    run(scenario)


def test_a_claim_whose_class_was_deleted_is_deallocated_and_deleted() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one", mode="Immediate")
            await cluster.wait_until("one", is_allocated)
        await cluster.api.delete(f"{CLASSES}/acme")
        async with cluster.run_controller():
            await cluster.api.delete(f"{CLAIMS}/one")
            await wait_until(cluster.names, lambda names: names == [])
        assert cluster.hardware.given == {}

    run(scenario)


def test_a_begun_claim_whose_class_was_deleted_loses_its_finalizer() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        await cluster.create_claim("one", mode="Immediate")
        held = {"metadata": {"finalizers": [FINALIZER]}}  # as somebody left it who was killed then
        await cluster.api.patch(f"{CLAIMS}/one", held, MERGE)
        cluster.hardware.give((await cluster.claim("one")).metadata.uid, "node-a")
        await cluster.api.delete(f"{CLASSES}/acme")
        async with cluster.run_controller():
            await cluster.wait_until("one", lambda claim: not claim.metadata.finalizers)
        assert cluster.hardware.given == {}

    run(scenario)


def test_a_claim_whose_finalizers_somebody_removed_is_deallocated() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one", mode="Immediate")
            await cluster.wait_until("one", is_allocated)
            await cluster.api.delete(f"{CLAIMS}/one")
            if "one" in await cluster.names():
                await cluster.api.ask(
                    "PATCH",
                    f"{CLAIMS}/one",
                    {"metadata": {"finalizers": None}},
                    headers={"content-type": MERGE},
                )
            await wait_until(lambda: _given(cluster), lambda given: given == {})

    run(scenario)


async def _given(cluster: ClassicCluster) -> dict[str, str]:
    return dict(cluster.hardware.given)


def test_an_immediate_claim_waits_until_another_is_given_back() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        async with cluster.run_controller():
            await cluster.create_claim("one", mode="Immediate")
            await cluster.wait_until("one", is_allocated)
            await cluster.create_claim("two", mode="Immediate")
            assert await wait_until(lambda: list_event_notes(cluster)) == ["everything is taken"]
            await cluster.api.delete(f"{CLAIMS}/one")
            await cluster.wait_until("two", is_allocated)
        assert cluster.hardware.faults == []

    run(scenario, {"node-a": 1})


def test_one_of_two_controllers_works_and_the_other_takes_over() -> None:
    async def scenario(cluster: ClassicCluster) -> None:
        for verb in ("clusterroles", "clusterrolebindings"):
            where = path(verb, group="rbac.authorization.k8s.io", namespace="")
            await cluster.api.create(_LEASES[verb], where)
        quick = LeaseTiming(0.6, 0.4, 0.05)
        first = ClassicControllerOptions(
            elect=True, identity="first", timing=quick, retry_delay=ClassicRetryDelay(0.01, 0.05)
        )
        second = ClassicControllerOptions(
            elect=True, identity="second", timing=quick, retry_delay=ClassicRetryDelay(0.01, 0.05)
        )
        async with cluster.run_controller(options=first) as leader:
            other = ClassicControllerService(Client(cluster.connect()), cluster.units, second)
            task = asyncio.create_task(other.run())
            await cluster.create_claim("one", mode="Immediate")
            await cluster.wait_until("one", is_allocated)
            assert leader.ready.is_set()
            assert not other.ready.is_set()
        await asyncio.wait_for(other.ready.wait(), 20)
        await cluster.create_claim("two", mode="Immediate")
        await cluster.wait_until("two", is_allocated)
        task.cancel()
        await asyncio.wait([task])
        assert cluster.hardware.faults == []

    run(scenario)


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
        async with serve_for_drivers() as cluster:
            with pytest.raises(InputError, match="not the name of a driver"):
                ClassicControllerService(cluster.admin, ClassicController())

    asyncio.run(nameless())
