"""Pod workers: claims before containers, restarts, ordered termination, and forced deletion."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dray.client.patches import MergePatch, StrategicMergePatch
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


def state(seen: Document, position: int = 0, field: str = "containerStatuses") -> Document:
    found: Document = seen["status"][field][position]["state"]
    return found


def shell(name: str, script: str, **more: Any) -> Document:
    return container(name, "sh", "-c", script, **more)


@pytest.mark.req("K3063-123", "K3063-052")
def test_containers_start_when_claims_are_prepared_and_pods_end_when_they_are_released(
    tmp_path: Path,
) -> None:
    async def work(harness: AgentHarness) -> None:
        driver = harness.driver
        driver.hold = asyncio.Event()
        async with harness.agent():
            await harness.create(pod("p", shell("c", "exit 0"), claim="gpus", restartPolicy="Never"))
            await harness.claim("gpus", "p")
            await until(lambda: _is(driver.asked == ["prepare default/gpus"]))
            seen = await harness.pod("p")
            assert seen["status"]["phase"] == "Pending"
            driver.says = "not now"
            driver.hold.set()
            await harness.until("p", lambda seen: "PrepareFailed" in str(seen["status"]))
            assert "not now" in str(await harness.pod("p"))
            driver.says = ""
            await until(lambda: _is(bool(driver.held)))
            driver.says = "still busy"
            await until(lambda: _is("unprepare default/gpus" in driver.asked))
            seen = await harness.pod("p")
            assert seen["status"]["phase"] in ("Pending", "Running"), "its claim is not given back"
            seen = await harness.until("p", lambda seen: seen["status"].get("reason") == "UnprepareFailed")
            assert (seen["status"]["phase"], "terminated" in state(seen)) == ("Running", True)
            driver.says = ""
            seen = await harness.phase("p", "Succeeded")
            assert not driver.held
            assert "reason" not in seen["status"]
            assert state(seen)["terminated"]["exitCode"] == 0

    run_on_node(tmp_path, work)


async def _is(it: bool) -> bool:
    return it


def test_containers_restart_by_the_policy(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent() as agent:
            await harness.create(
                pod("always", shell("c", "exit 0")),
                pod("fails", shell("c", "exit 7"), restartPolicy="OnFailure"),
                pod("well", shell("c", "echo done"), restartPolicy="OnFailure"),
                pod("never", shell("c", "kill -9 $$$$"), restartPolicy="Never"),
            )
            for name, code in (("always", 0), ("fails", 7)):
                seen = await harness.until(
                    name,
                    lambda seen: (
                        (seen["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0) > 1
                    ),
                )
                assert seen["status"]["phase"] == "Running"
                one = seen["status"]["containerStatuses"][0]
                last = one["lastState"] or one["state"]
                assert last["terminated"]["exitCode"] == code
            await harness.until("fails", lambda seen: "CrashLoopBackOff" in str(state(seen)))
            assert state(await harness.phase("well", "Succeeded"))["terminated"]["reason"] == "Completed"
            end = state(await harness.phase("never", "Failed"))["terminated"]
            assert (end["exitCode"], end["signal"], end["reason"]) == (137, 9, "Error")
            text = agent.metrics.render().decode()
            assert 'kubelet_started_containers_total{container_type="container"}' in text

    run_on_node(tmp_path, work)


def test_init_containers_and_sidecars_come_first_and_sidecars_end_last(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        note = tmp_path / "order"
        say = f"echo %s >> {note}"
        inits = [
            shell("one", say % "one"),
            shell(
                "side",
                f"trap '{say % 'side-ends'}; exit 0' TERM; {say % 'side'}; while :; do sleep 0.05; done",
            ),
            shell("two", say % "two"),
        ]
        inits[1]["restartPolicy"] = "Always"
        main = shell("c", f"{say % 'main'}; sleep 0.3; {say % 'main-ends'}")
        async with harness.agent():
            await harness.create(pod("p", main, initContainers=inits, restartPolicy="Never"))
            seen = await harness.phase("p", "Succeeded")
            words = note.read_text().split()
            assert words == ["one", "side", "two", "main", "main-ends", "side-ends"]
            names = [one["name"] for one in seen["status"]["initContainerStatuses"]]
            assert names == ["one", "side", "two"]

    run_on_node(tmp_path, work)


def test_an_init_container_that_fails_ends_the_pod(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            inits = [shell("i", "exit 2")]
            await harness.create(pod("p", initContainers=inits, restartPolicy="Never"))
            seen = await harness.phase("p", "Failed")
            assert state(seen, field="initContainerStatuses")["terminated"]["exitCode"] == 2
            assert "waiting" in state(seen)

    run_on_node(tmp_path, work)


def test_a_pod_whose_time_is_over_fails(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            soon = MergePatch({"spec": {"activeDeadlineSeconds": 1}})
            await harness.admin.patch(POD, "p", soon, "default")
            seen = await harness.phase("p", "Failed")
            assert seen["status"]["reason"] == "DeadlineExceeded"
            assert not harness.driver.held
            assert "terminated" in state(seen)

    run_on_node(tmp_path, work)


@pytest.mark.req("K3063-143", "K3063-145")
def test_a_deleted_pod_stops_releases_its_claims_and_is_removed(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        seen: list[str] = []
        async with harness.agent() as agent:
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            assert harness.driver.held
            harness.driver.says = "cannot let go"
            await harness.delete("p")
            await until(lambda: _is("unprepare default/gpus" in harness.driver.asked))
            seen.append((await harness.pod("p"))["status"]["phase"])
            harness.driver.says = ""
            await harness.gone("p")
            assert agent.ready.is_set()
        assert seen == ["Running"], "it is neither over nor gone while a driver has its devices"
        assert not harness.driver.held

    run_on_node(tmp_path, work)


def test_less_time_is_less_time(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        stubborn = shell("c", "trap '' TERM; while :; do sleep 0.1; done")
        async with harness.agent():
            await harness.create(pod("p", stubborn, terminationGracePeriodSeconds=3600))
            await harness.phase("p", "Running")
            await harness.delete("p")
            await until(lambda: harness.has_event("Killing"))
            await harness.delete("p", grace=1)
            await harness.gone("p")

    run_on_node(tmp_path, work)


def test_a_sidecar_that_is_about_to_end_has_no_more_time_than_its_pod(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        side = shell("side", "trap '' TERM; while :; do sleep 0.1; done", restartPolicy="Always")
        spec: Document = {
            "initContainers": [side],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 3600,
        }
        async with harness.agent():
            await harness.create(pod("p", shell("c", "exit 0"), **spec))
            await harness.until(
                "p", lambda seen: "terminated" in str(seen["status"].get("containerStatuses"))
            )
            await harness.delete("p", grace=1)
            await harness.gone("p")

    run_on_node(tmp_path, work)


def test_a_driver_that_hangs_does_not_hold_up_the_end_of_a_pod(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        harness.driver.hold = asyncio.Event()
        async with harness.agent():
            await harness.create(pod("p", claim="gpus"))
            await harness.claim("gpus", "p")
            await until(lambda: _is(bool(harness.driver.asked)))
            await harness.delete("p")
            await asyncio.sleep(0.1)
            harness.driver.hold.set()
            await harness.gone("p")
            assert not harness.driver.held, "what it may have prepared was given back"

    run_on_node(tmp_path, work)


@pytest.mark.req("K3063-171")
def test_a_pod_that_is_refused_waits_with_the_reason_and_starts_when_it_is_right(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent() as agent:
            await harness.create(pod("other"), pod("p", claim="gpus"))
            await harness.phase("other", "Running")
            await harness.claim("gpus", "other")
            seen = await harness.until("p", lambda seen: "ClaimNotReserved" in str(seen["status"]))
            assert seen["status"]["phase"] == "Pending"
            assert state(seen)["waiting"]["reason"] == "ClaimNotReserved"
            assert "default/gpus" in state(seen)["waiting"]["message"]
            assert harness.driver.asked == []
            assert (await harness.pod("other"))["status"]["phase"] == "Running"
            text = agent.metrics.render().decode()
            assert 'dray_node_refused_pods_total{reason="ClaimNotReserved"}' in text
            await harness.reserve("gpus", "p")
            await harness.phase("p", "Running")

    run_on_node(tmp_path, work)


@pytest.mark.req("K4816-104")
def test_a_container_that_cannot_start_has_a_reason_and_is_counted(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        lacking = container(
            "c", env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
        )
        async with harness.agent() as agent:
            await harness.create(pod("p", lacking))
            seen = await harness.until("p", lambda seen: "CreateContainerConfigError" in str(seen["status"]))
            assert "ConfigMap `m`" in state(seen)["waiting"]["message"]
            text = agent.metrics.render().decode()
            labels = '{code="CreateContainerConfigError",container_type="container"}'
            assert f"kubelet_started_containers_errors_total{labels}" in text
            entry = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
            await harness.create({**entry, "metadata": {"name": "m", "namespace": "default"}})
            await harness.phase("p", "Running")

    run_on_node(tmp_path, work)


@pytest.mark.req("K3063-042")
def test_containers_of_a_pod_share_a_claim(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p", container("a"), container("b"), claim="gpus"))
            await harness.claim("gpus", "p")
            seen = await harness.until("p", lambda seen: seen["status"]["phase"] == "Running")
            assert harness.driver.asked == ["prepare default/gpus"]
            for one in seen["status"]["containerStatuses"]:
                assert one["allocatedResourcesStatus"][0]["name"] == "claim:gpu"

    run_on_node(tmp_path, work)


def test_conditions_of_others_are_left_alone(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(pod("p"))
            await harness.phase("p", "Running")
            theirs = {"type": "example.com/seen", "status": "True"}
            patch = StrategicMergePatch({"status": {"conditions": [theirs]}})
            await harness.admin.patch(POD, "p", patch, "default", subresource="status")
            await harness.delete("p")
            await harness.gone("p")
            await harness.create(pod("q", shell("c", "sleep 0.4"), restartPolicy="Never"))
            await harness.phase("q", "Running")
            await harness.admin.patch(POD, "q", patch, "default", subresource="status")
            seen = await harness.phase("q", "Succeeded")
            kept = {one["type"]: one["status"] for one in seen["status"]["conditions"]}
            assert kept[theirs["type"]] == theirs["status"]

    run_on_node(tmp_path, work)


def test_another_pod_of_the_same_name_is_another_pod(tmp_path: Path) -> None:
    async def work(harness: AgentHarness) -> None:
        async with harness.agent():
            await harness.create(
                pod("p", shell("c", "trap '' TERM; while :; do sleep 0.1; done"), claim="gpus")
            )
            await harness.claim("gpus", "p")
            await harness.phase("p", "Running")
            await harness.delete("p", grace=0)
            await harness.create(pod("p", claim="gpus"))
            await harness.reserve("gpus", "p")
            await harness.phase("p", "Running")
            asked = harness.driver.asked
            assert asked.count("prepare default/gpus") - asked.count("unprepare default/gpus") == 1
            assert (await harness.pod("p"))["spec"]["nodeName"] == NODE

    run_on_node(tmp_path, work, ToyDriver())
