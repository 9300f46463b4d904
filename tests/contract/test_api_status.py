"""Statuses through the API: of shared devices, and of classic claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.contract.api import APPLY, MERGE, Api, path, serving
from tests.contract.documents import claim, pod, request, resource_slice

SHARES = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
STATUS = path("resourceclaims", "c", sub="status")


async def _shared(api: Api) -> None:
    """A claim that holds two shares of one device."""
    amounts = {"bandwidth": {"value": "10Gi"}}
    published = resource_slice("s", devices=1, allowMultipleAllocations=True, capacity=amounts)
    await api.create(published)
    asked = [request(name, capacity={"requests": {"bandwidth": "2Gi"}}) for name in ("a", "b")]
    await api.create(claim("c", requests=asked))
    results = [
        {
            "request": name,
            "driver": "gpu.example.com",
            "pool": "node-a",
            "device": "gpu-0",
            "shareID": share,
            "consumedCapacity": {"bandwidth": "2Gi"},
        }
        for name, share in zip(("a", "b"), SHARES, strict=True)
    ]
    await api.patch(STATUS, {"status": {"allocation": {"devices": {"results": results}}}})


def _device(share: str, address: str = "10.0.0.1/24") -> dict[str, Any]:
    return {
        "driver": "gpu.example.com",
        "pool": "node-a",
        "device": "gpu-0",
        "shareID": share,
        "networkData": {"ips": [address]},
    }


def _applied(*devices: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "status": {"devices": list(devices)},
    }


@pytest.mark.req("K5075-009", "K5075-086", "K5075-087")
async def test_each_share_of_a_device_has_its_own_status() -> None:
    async with serving() as api:
        await _shared(api)
        for number, share in enumerate(SHARES):
            body = _applied(_device(share, f"10.0.0.{number}/24"))
            await api.patch(STATUS, body, APPLY, fieldManager=f"driver-{number}")
        stored = await api.get(path("resourceclaims", "c"))
        addresses = {each["shareID"]: each["networkData"]["ips"] for each in stored["status"]["devices"]}
        assert addresses == {SHARES[0]: ["10.0.0.0/24"], SHARES[1]: ["10.0.0.1/24"]}
        changed = await api.patch(
            STATUS, _applied(_device(SHARES[0], "10.0.0.9/24")), APPLY, fieldManager="driver-0"
        )
        addresses = {each["shareID"]: each["networkData"]["ips"] for each in changed["status"]["devices"]}
        assert addresses == {SHARES[0]: ["10.0.0.9/24"], SHARES[1]: ["10.0.0.1/24"]}
        twice = {"status": {"devices": [_device(SHARES[0]), _device(SHARES[0])]}}
        refused = await api.ask("PATCH", STATUS, twice, headers={"content-type": MERGE})
        assert refused.code == 422
        assert refused.document["details"]["causes"][0]["reason"] == "FieldValueDuplicate"


async def test_a_device_that_is_released_loses_its_status() -> None:
    async with serving() as api:
        await _shared(api)
        await api.patch(STATUS, {"status": {"devices": [_device(share) for share in SHARES]}}, MERGE)
        results = (await api.get(path("resourceclaims", "c")))["status"]["allocation"]["devices"]["results"]
        assert len(results) == len(SHARES)
        # As kube-controller-manager does it: it knows nothing of what drivers report.
        released = await api.patch(STATUS, {"status": {"allocation": None}}, MERGE)
        assert "devices" not in released.get("status", {})


@pytest.mark.req("K5075-117")
async def test_only_devices_that_are_allocated_have_a_status() -> None:
    async with serving() as api:
        await _shared(api)
        for wrong in (
            _device("33333333-3333-4333-8333-333333333333"),
            _device(SHARES[0]) | {"device": "gpu-9"},
            {key: value for key, value in _device(SHARES[0]).items() if key != "shareID"},
        ):
            body = {"status": {"devices": [wrong]}}
            refused = await api.ask("PATCH", STATUS, body, headers={"content-type": MERGE})
            assert refused.code == 422, wrong
            assert refused.document["details"]["causes"][0]["field"].startswith("status.devices[0]")
        await api.patch(STATUS, {"status": {"devices": [_device(SHARES[1])]}})


@pytest.mark.req("K4816-105")
async def test_the_start_of_the_server_is_a_metric() -> None:
    async with serving() as api:
        text = (await api.ask("GET", "/metrics")).document
        assert any(line.startswith("process_start_time_seconds ") for line in text.splitlines())


CLASSIC = path("resourceclaims", group="cdi.k8s.io", version="v1alpha1")


def _classic(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "cdi.k8s.io/v1alpha1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceClassName": "acme", "parameters": {"b": [1, 2.5], "a": None}},
    }


async def _negotiated(api: Api, name: str) -> dict[str, Any]:
    where = f"{CLASSIC}/{name}/status"
    offer = {"scheduler": {"selectedNode": "node-a", "potentialNodes": ["node-a", "node-b"]}}
    await api.patch(where, {"status": {"scheduling": offer, "driverName": "acme.example.com"}})
    answer = {"scheduling": {"driver": {"unsuitableNodes": ["node-b"]}}}
    await api.patch(where, {"status": answer})
    done = {"phase": "Allocated", "attributes": {"id": "42"}, "userLimit": 1, "scheduling": None}
    stored: dict[str, Any] = await api.patch(where, {"status": done})
    return stored


@pytest.mark.req("K3063-032", "K3063-070")
async def test_scheduler_and_driver_agree_through_the_status() -> None:
    async with serving() as api:
        made = await api.create(_classic("c"), CLASSIC)
        assert made["spec"]["parameters"] == {"b": [1, 2.5], "a": None}
        assert made["status"]["phase"] == "Pending"
        async with api.watch(CLASSIC) as watch:
            await watch.tell(1)
            stored = await _negotiated(api, "c")
            seen = [(await watch.event())["object"]["status"] for _ in range(3)]
        assert seen[0]["scheduling"]["scheduler"]["selectedNode"] == "node-a"
        assert seen[1]["scheduling"]["driver"]["unsuitableNodes"] == ["node-b"]
        assert (stored["status"]["phase"], stored["status"]["attributes"]) == ("Allocated", {"id": "42"})
        assert "scheduling" not in stored["status"]


@pytest.mark.req("K3063-077")
async def test_of_many_schedulers_one_reserves_a_classic_claim() -> None:
    async with serving() as api:
        await api.create(_classic("c"), CLASSIC)
        stored = await _negotiated(api, "c")
        users = [await api.create(pod(f"p{number}")) for number in range(5)]
        tries = []
        for user in users:
            metadata = user["metadata"]
            entry = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            body = {**stored, "status": {**stored["status"], "reservedFor": [entry]}}
            tries.append(api.ask("PUT", f"{CLASSIC}/c/status", body))
        answers = await asyncio.gather(*tries)
        assert sorted(response.code for response in answers) == [200, 409, 409, 409, 409]


async def test_claims_of_both_groups_share_their_names() -> None:
    async with serving() as api:
        await api.create(_classic("c"), CLASSIC)
        response = await api.ask("POST", path("resourceclaims"), claim("c"))
        assert (response.code, response.reason) == (409, "AlreadyExists")
        await api.create(claim("d"))
        response = await api.ask("POST", CLASSIC, _classic("d"))
        assert (response.code, response.reason) == (409, "AlreadyExists")
        both = (("POST", path("resourceclaims"), claim("e")), ("POST", CLASSIC, _classic("e")))
        answers = await asyncio.gather(*(api.ask(*each) for each in both))
        assert sorted(response.code for response in answers) == [201, 409]


async def test_a_pod_with_scheduling_gates_has_the_condition_from_the_start() -> None:
    async with serving() as api:
        free, gated = pod("free"), pod("gated")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        assert "conditions" not in (await api.create(free))["status"]
        (condition,) = (await api.create(gated))["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "SchedulingGated",
        )


async def test_the_status_of_a_deployment_is_written_with_annotations_and_nothing_else() -> None:
    """kube-controller-manager writes the revision of a deployment, an annotation, with its status."""
    labels = {"matchLabels": {"a": "b"}}
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    deployment: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment"}
    deployment |= {"metadata": {"name": "d"}, "spec": {"selector": labels, "template": pods}}
    where = path("deployments", group="apps")
    async with serving() as api:
        made = await api.create(deployment, where)
        metadata = {**made["metadata"], "annotations": {"revision": "1"}, "labels": {"not": "this"}}
        written = {
            **made,
            "metadata": metadata,
            "status": {"replicas": 1},
            "spec": {**made["spec"], "paused": True},
        }
        found = await api.put(written, f"{where}/d/status")
        assert found["metadata"]["annotations"] == {"revision": "1"}
        assert (found["status"]["replicas"], found["spec"]) == (1, made["spec"])
        assert "labels" not in found["metadata"]
        assert found["metadata"]["generation"] == 1
