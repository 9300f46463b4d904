"""Unusual pods and changes by other clients: each gets an error, and the other pods continue."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.containers.runtime.base import ContainerExit, ContainerId
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.pods.pod_status_writer import PodStatusWriter
from dray.node.pods.supervisor import PodSupervisor
from tests.unit.node.agent_harness import (
    EVENT,
    POD,
    AgentHarness,
    Document,
    container,
    pod,
    run_on_node,
    until,
)

PREPARATION = get_kind("Preparation.dray.dev")


@pytest.fixture
def lenient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without rules for pods, as in older releases; what it stored is still there."""
    monkeypatch.setattr("dray.server.registry.writer.has_document_rules", lambda kind: False)
    monkeypatch.setattr("dray.api.whole_objects.has_object_type", lambda kind, version: False)


def unnamed() -> Document:
    return {"image": "none:1", "command": ["sleep", "600"]}


@pytest.mark.usefixtures("lenient_server")
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"containers": [unnamed()]}, "spec.containers[0].name: a container needs a name"),
        (
            {"containers": [container("c"), container("c")]},
            "spec.containers[1].name: another container of the pod is called `c`, too",
        ),
        (
            {"initContainers": [container("c", "true")], "containers": [container("c")]},
            "spec.containers[0].name: another container of the pod is called `c`, too",
        ),
    ],
)
def test_a_pod_with_duplicate_container_names_fails_alone(tmp_path: Path, spec: Document, said: str) -> None:
    async def work(harness: AgentHarness) -> None:
        odd = pod("odd")
        odd["spec"] |= spec
        async with harness.agent():
            await harness.create(odd, pod("well"))
            seen = await harness.phase("odd", "Failed")
            assert (seen["status"]["reason"], seen["status"]["message"]) == ("InvalidPod", said)
            await harness.phase("well", "Running")
        async with harness.agent():
            await harness.delete("odd")
            await harness.gone("odd")
            await harness.delete("well", grace=0)
            await harness.gone("well")

    run_on_node(tmp_path, work)


STATUSES: tuple[Document, ...] = (
    {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": "x", "startedAt": 5}}}]},
    {"containerStatuses": [{"name": "c", "restartCount": "x", "state": {"running": "x"}}]},
    {"containerStatuses": [{"name": "c", "state": "x", "lastState": [1]}], "initContainerStatuses": "abc"},
    {"containerStatuses": 5, "startTime": "0001-01-01T00:00:00"},
    {"containerStatuses": [{"name": "c", "state": {"waiting": 7}, "lastState": {"terminated": {}}}]},
    {"containerStatuses": [{"name": "c", "state": {"running": {"startedAt": "0001-01-01T00:00:00"}}}]},
)


@pytest.mark.usefixtures("lenient_server")
@pytest.mark.parametrize("status", STATUSES)
def test_an_agent_takes_up_containers_whatever_others_wrote_into_the_status(
    tmp_path: Path, status: Document
) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p"))
            seen = await harness.phase("p", "Running")
            before = seen["status"]["containerStatuses"][0]["containerID"]
        patch = MergePatch({"status": status})
        await harness.admin.patch(POD, "p", patch, "default", subresource="status")
        async with harness.agent():
            seen = await harness.until("p", lambda seen: "containerID" in str(seen["status"]))
            assert seen["status"]["containerStatuses"][0]["containerID"] == before
            await harness.delete("p", grace=0)
            await harness.gone("p")

    run_on_node(tmp_path, work)


@pytest.mark.usefixtures("lenient_server")
@pytest.mark.parametrize(
    "more",
    [
        {"env": [{"name": "A", "value": 5}]},
        {"envFrom": [3]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": "x"}}]},
        {"args": [None, {}]},
        {"workingDir": 7},
        {"securityContext": "root"},
        {"command": "sh"},
    ],
)
def test_an_invalid_container_waits_with_a_message_that_names_the_field(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("odd", container("c") | more))
            seen = await harness.until("odd", lambda seen: "ConfigError" in str(seen["status"]))
            waiting = seen["status"]["containerStatuses"][0]["state"]["waiting"]
            assert waiting["message"].startswith("spec.containers[0]"), waiting
            told = [
                one["note" if "note" in one else "message"] for one in (await harness.admin.list(EVENT)).items
            ]
            assert not any("fault of its own" in text for text in told), told
            await harness.delete("odd", grace=0)
            await harness.gone("odd")

    run_on_node(tmp_path, work)


def test_a_pod_that_another_client_declares_finished_stops_and_releases_its_claims(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            over = {"phase": "Failed", "reason": "Evicted", "message": "node pressure"}
            await harness.admin.patch(POD, "p", MergePatch({"status": over}), "default", subresource="status")
            seen = await harness.until("p", lambda seen: "terminated" in str(seen["status"]))
            assert not harness.driver.held
            assert {name: seen["status"][name] for name in over} == over

    run_on_node(tmp_path, work)


def test_a_status_that_others_wrote_over_is_written_again(tmp_path: Path) -> None:
    """Also when the server was put back to an earlier state, in which the pod had not begun."""

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p"), pod("done", container("c", "true"), restartPolicy="Never"))
            earlier = {"phase": "Pending", "containerStatuses": [], "conditions": []}
            for name, phase in (("p", "Running"), ("done", "Succeeded")):
                before = await harness.phase(name, phase)
                patch = MergePatch({"status": earlier})
                await harness.admin.patch(POD, name, patch, "default", subresource="status")
                seen = await harness.phase(name, phase)
                assert _timeless(seen) == _timeless(before)

    run_on_node(tmp_path, work)


def _timeless(pod: Document) -> Document:
    """The status of a pod without the times of conditions: those that were wiped out begin anew."""
    status = pod["status"]
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status["conditions"]
    ]
    return {**status, "conditions": conditions}


def test_a_pod_that_is_deleted_while_its_claims_are_prepared_does_not_wait_for_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(_claims: PodClaimPreparer, _uid: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PodClaimPreparer, "wait_for_retry", for_ever)

    async def work(harness: AgentHarness) -> None:
        harness.driver.hold = asyncio.Event()
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await until(lambda: _is(bool(harness.driver.asked)))
            await harness.delete("p", grace=0)
            harness.driver.hold.set()
            await harness.gone("p")
            await until(lambda: _is(not harness.driver.held))

    run_on_node(tmp_path, work)


async def _is(it: bool) -> bool:
    return it


def test_what_runs_is_prepared_again_when_the_server_forgot_that_it_was(tmp_path: Path) -> None:
    """A server that was put back to an earlier state does not know that this node has the devices."""

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
        (standing,) = (await harness.admin.list(PREPARATION)).items
        await harness.admin.delete(PREPARATION, standing.metadata.name)
        harness.driver.asked.clear()
        async with harness.agent():

            async def is_announced() -> bool:
                return bool((await harness.admin.list(PREPARATION)).items)

            await until(is_announced)
            await until(lambda: _is(harness.driver.asked == ["prepare default/gpus"]))
            seen = await harness.pod("p")
            assert seen["status"]["containerStatuses"][0]["restartCount"] == 0

    run_on_node(tmp_path, work)


def test_an_unreadable_pod_has_an_event_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("cannot be read")

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            with monkeypatch.context() as patched:
                patched.setattr("dray.node.pods.pod_worker.restore_containers", broken)
                await harness.create(pod("odd"))

                async def is_told() -> bool:
                    told = (await harness.admin.list(EVENT)).items
                    return any("ZeroDivisionError: cannot be read" in str(one) for one in told)

                await until(is_told)
            await harness.create(pod("well"))
            await harness.phase("well", "Running")

    run_on_node(tmp_path, work)


def test_the_end_of_a_container_is_seen_when_it_could_not_be_followed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, real = [], ProcessRuntime.wait

    async def wait(runtime: ProcessRuntime, container: ContainerId) -> ContainerExit:
        waits.append(container)
        if len(waits) == 1:
            raise OSError(24, "Too many open files")
        return await real(runtime, container)

    monkeypatch.setattr(ProcessRuntime, "wait", wait)

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", container("c", "true"), restartPolicy="Never"))
            await harness.phase("p", "Succeeded")

    run_on_node(tmp_path, work)


def test_a_worker_whose_status_writer_fails_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, real = [], PodStatusWriter.run

    async def run(writer: PodStatusWriter) -> None:
        runs.append(writer)
        if len(runs) == 1:
            raise ZeroDivisionError("a slip of the pen")
        await real(writer)

    monkeypatch.setattr(PodStatusWriter, "run", run)
    monkeypatch.setattr("dray.node.pods.supervisor.RETRY_SECONDS", 0.1)

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p"))
            seen = await harness.phase("p", "Running")
            assert seen["status"]["containerStatuses"][0]["restartCount"] == 0

    run_on_node(tmp_path, work)


def test_claims_of_a_deleted_pod_are_released_after_its_containers_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when stopping fails at first: neither the agent ends for that, nor are devices taken away."""
    stops, real = [], ProcessRuntime.stop

    async def stop(runtime: ProcessRuntime, container: ContainerId, grace: float) -> None:
        stops.append(container)
        if len(stops) < 3:
            raise OSError(24, "Too many open files")
        await real(runtime, container, grace)

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
        await harness.delete("p", grace=0)
        monkeypatch.setattr(ProcessRuntime, "stop", stop)
        monkeypatch.setattr("dray.node.pods.supervisor.RETRY_SECONDS", 0.1)
        tried: list[int] = []

        async def note() -> None:
            tried.append(len(stops))

        harness.driver.before_unprepare = note
        async with harness.agent():
            await until(lambda: _is(not harness.driver.held))
            assert tried == [3]

    run_on_node(tmp_path, work)


def test_a_pod_that_appears_again_while_it_ends_gets_a_new_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored server does not know where a pod ran; its scheduler may choose the same node."""
    kept: list[PodSupervisor] = []

    class Kept(PodSupervisor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            kept.append(self)

    monkeypatch.setattr("dray.node.agent.PodSupervisor", Kept)

    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            begins = tmp_path / "begins"
            begins.touch()
            await harness.create(
                pod("p", container("c", "sh", "-c", f"echo >> {begins}; exec sleep 600"), claim="g")
            )
            await harness.claim("g", "p")
            seen = await harness.phase("p", "Running")

            async def once() -> bool:
                return begins.read_text() == "\n"

            await until(once)  # a container runs before it has done anything
            kept[0].handle_delete(seen)
            kept[0].handle_add(seen)
            assert kept[0].find_worker("default", "p") is not None

            async def twice() -> bool:
                return begins.read_text() == "\n\n"

            await until(twice, begins.read_text)
            assert harness.driver.asked == ["prepare default/g", "unprepare default/g", "prepare default/g"]
            await harness.phase("p", "Running")

    run_on_node(tmp_path, work)
