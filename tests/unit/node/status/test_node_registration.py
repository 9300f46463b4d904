"""The Node object: created or adopted, kept up to date, with a heartbeat."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE
from dray.client.client import Client
from dray.client.errors import NotFoundError
from dray.client.leases import HeartbeatOptions
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch, StrategicMergePatch
from dray.errors import InputError
from dray.node.status.node_registration import (
    CERTIFICATE_ANNOTATION,
    NodeDescription,
    NodeRegistration,
    build_node_status,
)
from dray.telemetry.logs import build_silent_logger
from tests.unit.node.agent_harness import NODE, AgentHarness, run_on_node, until

NODES, LEASES = get_kind("Node"), get_kind("Lease.coordination.k8s.io")
FACTS = NodeDescription(
    NODE,
    "10.0.0.7",
    10250,
    ("ab" * 32,),
    labels={"rack": "r1"},
    capacity={"cpu": "64", "example.com/slots": "2"},
    max_pods=7,
)


async def kept(client: Client, facts: NodeDescription) -> asyncio.Task[None]:
    board = NodeRegistration(client, facts, build_silent_logger())
    task = asyncio.create_task(board.run())
    await board.registered.wait()
    return task


def test_a_new_node_publishes_its_description(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        board = NodeRegistration(harness.own, FACTS, build_silent_logger())
        task = asyncio.create_task(board.run())
        await board.registered.wait()
        node = await harness.admin.get(NODES, NODE)
        pressures = dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "False")
        assert {one["type"]: one["status"] for one in node["status"]["conditions"]} == pressures
        await board.set_ready(True)
        node = await harness.admin.get(NODES, NODE)
        assert node["metadata"]["labels"] == {
            "kubernetes.io/hostname": NODE,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": FACTS.all_labels["kubernetes.io/arch"],
            "rack": "r1",
        }
        noted = {CERTIFICATE_ANNOTATION: "sha256:" + "ab" * 32, ACCOUNTED_ANNOTATION: NO_RESTORE}
        assert node["metadata"]["annotations"] == noted
        status = node["status"]
        assert (status["capacity"]["cpu"], status["capacity"]["pods"]) == ("64", "7")
        assert status["allocatable"] == status["capacity"]
        assert {"memory", "ephemeral-storage", "example.com/slots"} <= status["capacity"].keys()
        assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
        assert {"type": "InternalIP", "address": "10.0.0.7"} in status["addresses"]
        assert status["nodeInfo"]["containerRuntimeVersion"].startswith("process://")
        ready = {one["type"]: one["status"] for one in status["conditions"]}
        assert ready == {**pressures, "Ready": "True"}

        async def is_renewed() -> bool:
            leases = (await harness.admin.list(LEASES, "kube-node-lease")).items
            return [lease["spec"]["holderIdentity"] for lease in leases] == [NODE]

        await until(is_renewed)
        (lease,) = (await harness.admin.list(LEASES, "kube-node-lease")).items
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        await ended(task)

    run_on_node(tmp_path, work)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_node_that_is_there_is_adopted_with_what_others_wrote(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        metadata = {"name": NODE, "labels": {"theirs": "x"}, "annotations": {"note": "y"}}
        spec = {"unschedulable": True}
        theirs = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}
        await harness.create(theirs)
        task = await kept(harness.own, FACTS)
        node = await harness.admin.get(NODES, NODE)
        assert node["metadata"]["labels"].items() >= {"theirs": "x", "rack": "r1"}.items()
        assert node["metadata"]["annotations"].keys() == {"note", CERTIFICATE_ANNOTATION}
        assert node["spec"]["unschedulable"] is True
        await ended(task)

    run_on_node(tmp_path, work)


def test_a_deleted_node_is_registered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease, too: the one that belonged to the node before goes with that node."""
    monkeypatch.setattr(
        "dray.node.status.node_registration.HeartbeatOptions",
        partial(HeartbeatOptions, interval_seconds=0.05),
    )

    async def work(harness: AgentHarness) -> None:
        board = NodeRegistration(harness.own, FACTS, build_silent_logger())
        task = asyncio.create_task(board.run())
        await board.registered.wait()
        before = board.node.metadata.uid

        async def is_back() -> bool:
            nodes = (await harness.admin.list(NODES)).items
            return bool(nodes) and nodes[0]["metadata"]["uid"] != before

        async def has_its_lease() -> bool:
            leases = (await harness.admin.list(LEASES, "kube-node-lease")).items
            owners = [each["uid"] for one in leases for each in one["metadata"]["ownerReferences"]]
            return owners == [board.node.metadata.uid]

        await until(has_its_lease)
        await harness.admin.delete(NODES, NODE)
        await board.set_ready(False, "for a test")
        await until(is_back)
        with suppress(NotFoundError):
            await harness.admin.delete(LEASES, NODE, "kube-node-lease")
        await until(has_its_lease)
        await ended(task)

    run_on_node(tmp_path, work)


def test_what_others_write_on_the_node_is_seen_and_what_is_wrong_is_put_right(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        board, told = NodeRegistration(harness.own, FACTS, build_silent_logger()), asyncio.Event()
        task = asyncio.create_task(board.run())
        await board.registered.wait()
        await board.set_ready(True)
        board.add_listener(told.set)
        patch = MergePatch({"metadata": {"annotations": {"dray.dev/abandon-devices": "true"}}})
        await harness.admin.patch(NODES, NODE, patch)

        async def is_seen() -> bool:
            return "dray.dev/abandon-devices" in board.node.metadata.annotations

        await until(is_seen)
        assert told.is_set()
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        said = StrategicMergePatch({"status": {"conditions": [lost]}})
        await harness.admin.patch(NODES, NODE, said, subresource="status")

        async def is_ready() -> bool:
            conditions = (await harness.admin.get(NODES, NODE))["status"]["conditions"]
            return {"Ready": "True"}.items() <= {one["type"]: one["status"] for one in conditions}.items()

        await until(is_ready)
        await ended(task)

    run_on_node(tmp_path, work)


def test_conditions_keep_their_moments_and_a_node_can_say_that_it_is_not_ready() -> None:
    now, later = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
    first: dict[str, Any] = {"status": build_node_status(FACTS, {}, (True, ""), now)}
    second = build_node_status(FACTS, first, (False, "no disk"), later)
    seen = {one["type"]: one for one in second["conditions"]}
    assert seen["Ready"]["lastTransitionTime"] == later
    assert (seen["Ready"]["status"], seen["Ready"]["message"]) == ("False", "no disk")
    assert seen["DiskPressure"]["lastTransitionTime"] == now
    assert seen["DiskPressure"]["lastHeartbeatTime"] == later


def test_a_node_without_an_endpoint_names_no_port() -> None:
    facts = replace(FACTS, port=0, fingerprints=())
    assert "daemonEndpoints" not in build_node_status(facts, {}, (True, ""), "now")
    assert facts.annotations == {}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (NodeDescription("Bad_Name"), "metadata.name"),
        (NodeDescription(NODE, labels={"a b": "c"}), "metadata.labels"),
    ],
)
def test_a_node_that_the_server_rejects_is_an_input_error(
    tmp_path: Path, facts: NodeDescription, said: str
) -> None:
    async def work(harness: AgentHarness) -> None:
        with pytest.raises(InputError) as refused:
            await NodeRegistration(harness.admin, facts, build_silent_logger()).register()
        assert f"node `{facts.name}` cannot be registered" in str(refused.value)
        assert said in str(refused.value)

    run_on_node(tmp_path, work)
