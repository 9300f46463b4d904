"""A pod from its creation to its end, with the requests of kube-scheduler and kube-controller-manager."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.documents import allocation, consumer, device_class, node, resource_slice
from tests.contract.shapes import missing
from tests.e2e.server import Running
from tests.e2e.wire import APPLY, STRATEGIC, WATCH_LIST, Daemon, daemons
from tests.outside import corpus_dir

PROTECTION = "resource.kubernetes.io/delete-protection"
NOW = "2026-11-15T20:23:25Z"


@dataclass(frozen=True)
class Work:
    """Both daemons, and where things are."""

    scheduler: Daemon
    controller: Daemon
    namespace: str

    def pod(self, name: str, sub: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}" + (f"/{sub}" if sub else "")

    def claim(self, name: str = "", sub: str = "") -> str:
        home = f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims"
        return home + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    @property
    def events(self) -> str:
        return f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

    async def begin(self, name: str) -> dict[str, Any]:
        """A namespace with a node, its devices, a template and a pod that uses it."""
        node_name = f"node-{self.namespace}"
        made = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": self.namespace}}
        await self.controller.good("POST", "/api/v1/namespaces", made)
        await self.controller.good("POST", "/api/v1/nodes", node(node_name))
        resources = "/apis/resource.k8s.io/v1"
        published = resource_slice(f"{node_name}-gpu", node_name)
        await self.controller.good("POST", f"{resources}/resourceslices", published)
        await self.controller.ask("POST", f"{resources}/deviceclasses", device_class())
        return await self.create_pod(name)

    async def create_pod(self, name: str) -> dict[str, Any]:
        document = {
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "containers": [{"name": "c", "image": "pause:3", "resources": {"claims": [{"name": "g"}]}}],
                "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}],
            },
        }
        made: dict[str, Any] = await self.controller.good("POST", self.pod("")[:-1], document)
        return made

    async def make_claim(self, pod: dict[str, Any]) -> dict[str, Any]:
        """What the controller does for a pod with a template."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
        exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
        body = {
            "metadata": {
                "generateName": f"{name}-g-",
                "annotations": {"resource.kubernetes.io/pod-claim-name": "g"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            "status": {},
        }
        made: dict[str, Any] = await self.controller.good("POST", self.claim(), body)
        claim_name = made["metadata"]["name"]
        applied: dict[str, Any] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": self.namespace},
            "status": {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": claim_name}]},
        }
        query = {"fieldManager": "ResourceClaimController", "force": "true"}
        status = await self.controller.good(
            "PATCH", self.pod(name, "status"), applied, content=APPLY, **query
        )
        assert status["status"]["resourceClaimStatuses"] == applied["status"]["resourceClaimStatuses"]
        return made

    async def allocate(self, claim: dict[str, Any], pod: dict[str, Any], device: str) -> dict[str, Any]:
        """What the scheduler does to a claim before it binds the pod."""
        name = claim["metadata"]["name"]
        claim["metadata"]["finalizers"] = [PROTECTION]
        claim = await self.scheduler.good("PUT", self.claim(name), claim)
        given = allocation(device, node=f"node-{self.namespace}") | {"allocationTimestamp": NOW}
        claim["status"] = {"allocation": given, "reservedFor": [consumer(pod)]}
        stored: dict[str, Any] = await self.scheduler.good("PUT", self.claim(name, "status"), claim)
        return stored

    async def change(self, name: str, sub: str, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Read, change and write a claim, again when somebody else was faster: as controllers do."""
        while True:
            document = await self.controller.good("GET", self.claim(name))
            change(document)
            told = await self.controller.ask("PUT", self.claim(name, sub), document)
            if told.code != 409:
                assert told.code == 200, told.document
                return dict(told.document)

    async def bind(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": metadata["name"], "namespace": self.namespace, "uid": metadata["uid"]},
            "target": {"kind": "Node", "name": f"node-{self.namespace}"},
        }
        told = await self.scheduler.ask("POST", self.pod(metadata["name"], "binding"), binding)
        assert told.code == 201, told.document


def recorded_watch(config: pytest.Config, name: str) -> list[dict[str, Any]]:
    """The lines of a recorded watch; the test is skipped when there are none."""
    corpus = corpus_dir(config)
    found = corpus.parent / "api-samples" / name if corpus else Path(name)
    if not found.is_file():
        pytest.skip(f"no recorded watch `{name}` (api-samples) beside the corpus")
    return [json.loads(line) for line in found.read_text().splitlines()]


async def test_a_pod_with_a_templated_claim_runs_and_ends(server: Running, tmp_path: Path) -> None:
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-life")
        pod = await work.begin("p-template")
        claim = await work.make_claim(pod)
        claim = await work.allocate(claim, pod, "gpu-0")
        await work.bind(pod)
        bound = await scheduler.good("GET", work.pod("p-template"))
        assert bound["spec"]["nodeName"] == "node-interop-life"
        assert bound["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == claim["metadata"]["name"]
        await _end(work, claim)


async def _end(work: Work, claim: dict[str, Any]) -> None:
    """The pod is preempted, its node ends it, and the controller takes its claim apart."""
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    preempted = await work.scheduler.good("DELETE", work.pod("p-template"), options)
    assert preempted["metadata"]["deletionTimestamp"]
    await work.controller.good("DELETE", work.pod("p-template"), options | {"gracePeriodSeconds": 0})
    name = claim["metadata"]["name"]

    def unreserved(document: dict[str, Any]) -> None:
        document["status"].pop("reservedFor")

    def unallocated(document: dict[str, Any]) -> None:
        document["status"] = {}

    def unprotected(document: dict[str, Any]) -> None:
        document["metadata"]["finalizers"] = []

    left = await work.change(name, "status", unreserved)
    assert left["status"]["allocation"]
    left = await work.change(name, "status", unallocated)
    assert not left.get("status")
    await work.change(name, "", unprotected)
    # The server's own collector deletes the claim of a pod that is gone: both ends are the same.
    options = {"kind": "DeleteOptions", "apiVersion": "resource.k8s.io/v1"}
    gone = await work.controller.ask("DELETE", work.claim(name), options)
    assert gone.code in (200, 404, 409)
    again = await work.controller.ask("GET", work.claim(name))
    assert again.code == 404


async def test_claims_have_the_recorded_shape(
    server: Running, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    recorded = recorded_watch(pytestconfig, "watchlist_resourceclaims.jsonl")
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-shape")
        pod = await work.begin("p-template")
        claim = await work.make_claim(pod)
        async with scheduler.watch(work.claim(), **WATCH_LIST) as lines:
            (found,), _ = await lines.present()
            assert found == claim
            await work.allocate(claim, pod, "gpu-0")
            await lines.event()
            modified = await lines.event()
    assert modified["type"] == "MODIFIED"
    wanted = next(line["object"] for line in recorded if "generateName" in line["object"]["metadata"])
    assert list(missing(modified["object"], wanted)) == []
    owners = modified["object"]["metadata"]["managedFields"]
    assert [(each["manager"], each.get("subresource", "")) for each in owners] == [
        ("kube-controller-manager", ""),
        ("kube-scheduler", ""),
        ("kube-scheduler", "status"),
    ]


async def test_pods_have_the_recorded_shape(
    server: Running, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    recorded = recorded_watch(pytestconfig, "watch_rv1.jsonl")
    wanted = next(line["object"] for line in recorded if line["object"]["metadata"]["name"] == "p-template")
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-pods")
        pod = await work.begin("p-template")
    assert list(missing(pod, wanted)) == []


async def test_a_pod_that_does_not_fit_says_why(server: Running, tmp_path: Path) -> None:
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-wait")
        pod = await work.begin("p-starved")
        await work.make_claim(pod)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 cannot allocate all claims",
            "observedGeneration": 1,
            "lastProbeTime": None,
            "lastTransitionTime": NOW,
        }
        patch = {"status": {"conditions": [condition], "nominatedNodeName": "node-interop-wait"}}
        told = await scheduler.good("PATCH", work.pod("p-starved", "status"), patch, content=STRATEGIC)
        assert told["status"]["conditions"] == [condition]
        assert told["status"]["resourceClaimStatuses"], "a strategic patch leaves other lists alone"
        event = _event("p-starved.18e8504c5d07155b", work, pod)
        made = await scheduler.good("POST", work.events, event)
        assert made["metadata"]["name"] == event["metadata"]["name"]
        series = {"series": {"count": 2, "lastObservedTime": "2026-11-15T20:23:26.000001Z"}}
        where = f"{work.events}/{event['metadata']['name']}"
        assert (await scheduler.good("PATCH", where, series, content=STRATEGIC))["series"]["count"] == 2
        seen = f"involvedObject.uid={pod['metadata']['uid']}"
        listed = await scheduler.good(
            "GET", f"/api/v1/namespaces/{work.namespace}/events", fieldSelector=seen
        )
        assert [each["message"] for each in listed["items"]] == [event["note"]]
        claim = (await scheduler.good("GET", work.claim()))["items"][0]
        await work.allocate(claim, pod, "gpu-0")
        await work.bind(pod)
        bound = await scheduler.good("GET", work.pod("p-starved"))
        assert [each["status"] for each in bound["status"]["conditions"]] == ["True"]
        assert "nominatedNodeName" not in bound["status"]


def _event(name: str, work: Work, pod: dict[str, Any]) -> dict[str, Any]:
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": work.namespace}
    return {
        "metadata": {"name": name, "namespace": work.namespace},
        "eventTime": "2026-11-15T20:23:25.000001Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-vm",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": about | {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
        "note": "0/1 nodes are available",
        "type": "Warning",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    }


async def test_a_device_is_not_given_twice(server: Running, tmp_path: Path) -> None:
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-twice")
        first = await work.begin("first")
        second = await work.create_pod("second")
        winner = await work.allocate(await work.make_claim(first), first, "gpu-0")
        loser = await work.make_claim(second)
        wanted = allocation("gpu-0", node="node-interop-twice")
        loser["status"] = {"allocation": wanted, "reservedFor": [consumer(second)]}
        name = loser["metadata"]["name"]
        refused = await scheduler.ask("PUT", work.claim(name, "status"), loser)
        assert (refused.code, refused.document["reason"]) == (409, "Conflict")
        assert "gpu-0" in refused.document["message"]
        assert winner["metadata"]["name"] in refused.document["message"]
        loser["status"]["allocation"] = allocation("gpu-1", node="node-interop-twice")
        await scheduler.good("PUT", work.claim(name, "status"), loser)


async def test_the_collector_of_others_reads_metadata_and_names_what_it_deletes(
    server: Running, tmp_path: Path
) -> None:
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-gc")
        pod = await work.begin("p")
        claim = await work.make_claim(pod)
        where = work.claim(claim["metadata"]["name"])
        partial = await controller.good("GET", where, accept="metadata")
        assert partial["kind"] == "PartialObjectMetadata"
        conditions = {"uid": partial["metadata"]["uid"], "resourceVersion": "1"}
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": conditions,
            "propagationPolicy": "Background",
        }
        late = await controller.ask("DELETE", where, options, accept="protobuf first")
        assert (late.code, late.document["reason"]) == (409, "Conflict")
        conditions["resourceVersion"] = partial["metadata"]["resourceVersion"]
        await controller.good("DELETE", where, options, accept="protobuf first")
        assert (await controller.ask("GET", where)).code == 404


async def test_a_namespace_is_emptied_by_a_controller(server: Running, tmp_path: Path) -> None:
    async with daemons(server.url, server.context(tmp_path)) as (scheduler, controller):
        work = Work(scheduler, controller, "interop-empty")
        await work.begin("p")
        where = f"/api/v1/namespaces/{work.namespace}"
        listed = await controller.good("GET", f"{where}/pods", accept="metadata")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["p"]
        await controller.good("DELETE", f"{where}/pods", {"propagationPolicy": "Background"})
        assert (await controller.good("GET", f"{where}/pods"))["items"] == []
        namespace = await controller.good("GET", where)
        namespace["status"] = {"phase": "Active", "conditions": [{"type": "Checked", "status": "True"}]}
        written = await controller.good("PUT", f"{where}/status", namespace)
        assert written["status"]["conditions"][0]["type"] == "Checked"
        await controller.good("DELETE", where)
        told = await controller.ask("GET", where)
        if told.code == 200:  # the server has not finished it yet
            told.document["spec"]["finalizers"] = []
            finished = await controller.ask("PUT", f"{where}/finalize", told.document)
            assert finished.code in (200, 404, 409)
