"""What node agents got wrong elsewhere, as far as the pod lifecycle is concerned."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from dray.api.json_text import write_json
from dray.client.patches import MergePatch
from dray.clock import SystemClock
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.plugins.driver_interface import DeviceHealth
from dray.telemetry.logs import StructuredLogger
from tests.unit.node.agent_harness import (
    NODE,
    POD,
    AgentHarness,
    Document,
    ToyDriver,
    container,
    pod,
    run_on_node,
    until,
)

GENERATED = "p-gpu-x7k2p"


def templated(name: str) -> Document:
    """A pod whose claim is made from a template."""
    document = pod(name)
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    document["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return document


async def made_from_template(harness: AgentHarness, name: str) -> None:
    """What the controllers do for such a pod: a claim of its own under a name that nobody could guess."""
    await harness.create(templated(name))
    uid = (await harness.pod(name))["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    entry = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    await harness.claim(GENERATED, name, ownerReferences=[owner], annotations=entry)
    said = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": GENERATED}]}}
    await harness.admin.patch(POD, name, MergePatch(said), "default", subresource="status")


def test_k01_claims_are_given_back_though_somebody_wiped_their_names_from_the_pod(tmp_path: Path) -> None:
    """Elsewhere the name of a generated claim was looked up in the pod's status when the pod ended: a client
    that wrote the status without it left the devices prepared for ever."""

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await made_from_template(harness, "p")
            await harness.phase("p", "Running")
            wiped = MergePatch({"status": {"resourceClaimStatuses": None}})
            await harness.admin.patch(POD, "p", wiped, "default", subresource="status")
            await harness.delete("p")
            await harness.gone("p")
            assert harness.driver.asked == [f"prepare default/{GENERATED}", f"unprepare default/{GENERATED}"]

    run_on_node(tmp_path, work)


def test_k08_a_pod_without_grace_is_given_back_after_its_containers_and_harms_nobody_later(
    tmp_path: Path,
) -> None:
    """Elsewhere a pod deleted with grace period 0 was forgotten before its claims were given back, and later
    pods with the same claim failed."""

    async def work(harness: AgentHarness) -> None:
        running: list[int] = []

        async def look() -> None:
            found = await ProcessRuntime(harness.root / "containers").list_containers()
            running.append(sum(one.exit is None for one in found))

        harness.driver.before_unprepare = look
        stubborn = container("c", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
        async with harness.agent():
            await harness.create(pod("p", stubborn, claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            await harness.delete("p", grace=0)
            await harness.gone("p")

            async def is_given_back() -> bool:
                return not harness.driver.held

            await until(is_given_back)
            await harness.create(pod("q", claim="gpus"))
            await harness.reserve("gpus", "q")
            await harness.phase("q", "Running")
            assert harness.driver.asked == [
                "prepare default/gpus",
                "unprepare default/gpus",
                "prepare default/gpus",
            ]
            assert running == [0], "its container had ended before its devices were given back"

    run_on_node(tmp_path, work)


def health(*states: str) -> Sequence[DeviceHealth]:
    return [DeviceHealth(NODE, f"gpu-{number}", state, "too hot") for number, state in enumerate(states)]


def test_k12_the_health_of_devices_is_reported_for_generated_and_for_renamed_claims(tmp_path: Path) -> None:
    """Elsewhere the name of the entry in the pod was taken for the name of the claim, so that nothing was
    told where they differ."""

    async def work(harness: AgentHarness) -> None:
        states: asyncio.Queue[Sequence[DeviceHealth]] = asyncio.Queue()
        harness.driver.states = states
        async with harness.agent():
            await made_from_template(harness, "p")
            await harness.create(pod("renamed", claim="another-name"))
            await harness.claim("another-name", "renamed", device="gpu-1")
            for name in ("p", "renamed"):
                await harness.phase(name, "Running")
            for state in ("Healthy", "Unhealthy"):
                states.put_nowait(health(state, state))
                for name in ("p", "renamed"):
                    seen = await harness.until(name, lambda seen, state=state: f"'{state}'" in str(seen))  # type: ignore[misc]
                    (told,) = seen["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
                    assert told["name"] == "claim:gpu"
                    (device,) = told["resources"]
                    assert device["resourceID"].startswith(f"{harness.driver.name}/{NODE}/gpu-")
                    assert device["health"] == state

    run_on_node(tmp_path, work)


def test_k17_a_static_pod_with_a_claim_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a pod that a node runs by itself could name a claim, and hung without a word."""
    # The server refuses such a pod, too; older ones did not.
    monkeypatch.setattr("dray.api.validation.kinds.pod.MIRROR", "none.example.com/mirror")

    async def work(harness: AgentHarness) -> None:
        mirror = pod("p", claim="gpus")
        mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "from-a-file"}
        async with harness.agent():
            await harness.create(mirror)
            seen = await harness.phase("p", "Failed")
            assert seen["status"]["reason"] == "StaticPodWithClaims"
            assert seen["status"]["message"]
            assert harness.driver.asked == []

    run_on_node(tmp_path, work)


def test_k17_a_file_that_describes_a_pod_with_a_claim_is_refused_with_a_reason(tmp_path: Path) -> None:
    """The same for the file itself: the pod is not even made, and the log says why."""

    async def work(harness: AgentHarness) -> None:
        folder, lines = tmp_path / "static", list[str]()
        folder.mkdir()
        (folder / "claims.json").write_bytes(write_json(pod("claims", claim="gpus")))
        (folder / "plain.json").write_bytes(write_json(pod("plain")))

        def took(line: bytes) -> bool:
            lines.append(line.decode())
            return True

        async with harness.agent(static_pods=folder, log=StructuredLogger(took, SystemClock())):
            await harness.phase_of_any(f"plain-{NODE}", "Running")
            assert [one["metadata"]["name"] for one in (await harness.admin.list(POD)).items] == [
                f"plain-{NODE}"
            ]
            (said,) = [line for line in lines if "claims.json" in line]
            assert "a static pod cannot have claims" in said
            assert harness.driver.asked == []

    run_on_node(tmp_path, work)


def test_k18_an_extended_resource_that_the_node_does_not_list_is_admitted(tmp_path: Path) -> None:
    """Elsewhere a node refused pods whose extended resource devices stand for, because the node itself offers
    none. Here a node does not judge again what the scheduler has settled; devices as extended resources are
    not built, and nothing on the node would stand in their way."""

    async def work(harness: AgentHarness) -> None:
        resources = {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}
        async with harness.agent():
            await harness.create(pod("p", container("c", resources=resources)))
            await harness.phase("p", "Running")

    run_on_node(tmp_path, work)


def test_k19_a_pod_that_ends_by_itself_goes_at_once(tmp_path: Path) -> None:
    """Elsewhere pods with claims were gone only a minute after their containers had ended. Here nothing of
    the end of a pod waits for a time to pass: with an hour of grace it is gone as soon as its container is,
    and an attempt to give back that failed is repeated when the driver is there again."""

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus", terminationGracePeriodSeconds=3600))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            await harness.delete("p")
            await harness.gone("p")
            assert harness.driver.asked == ["prepare default/gpus", "unprepare default/gpus"]

            async def is_cleared() -> bool:
                return await ProcessRuntime(harness.root / "containers").list_containers() == ()

            await until(is_cleared)

    run_on_node(tmp_path, work, ToyDriver())
