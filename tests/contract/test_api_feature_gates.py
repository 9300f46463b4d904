"""Feature gates that change while objects are stored: new fields are dropped, stored fields stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.gates import GateSet
from dray.store.memory import MemoryStore
from tests.contract.api import APPLY, MERGE, Api, path, serving
from tests.contract.documents import allocation, claim, config, pod, request, resource_slice, template


def without(*names: str) -> GateSet:
    return GateSet.from_defaults().override(dict.fromkeys(names, False))


class Restarts:
    """One store, served several times in succession with different gates."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    @asynccontextmanager
    async def on(self) -> AsyncIterator[Api]:
        async with serving(self.store) as api:
            yield api

    @asynccontextmanager
    async def off(self, *names: str) -> AsyncIterator[Api]:
        async with serving(self.store, without(*names)) as api:
            yield api


def _choices(name: str) -> dict[str, Any]:
    alternatives = [{"name": size, "deviceClassName": f"{size}.example.com"} for size in ("big", "small")]
    return claim(name, requests=[{"name": "gpu", "firstAvailable": alternatives}])


def _sharing(name: str) -> dict[str, Any]:
    amounts = {"bandwidth": {"value": "10Gi", "requestPolicy": {"default": "1Gi"}}}
    return resource_slice(name, devices=1, allowMultipleAllocations=True, capacity=amounts)


def _part(name: str) -> dict[str, Any]:
    return claim(name, requests=[request(capacity={"requests": {"bandwidth": "2Gi"}})])


@pytest.mark.req("K4816-108")
async def test_a_request_without_its_dropped_alternatives_is_invalid() -> None:
    async with serving(gates=without("DRAPrioritizedList")) as api:
        response = await api.ask("POST", path("resourceclaims"), _choices("c"))
        assert (response.code, response.reason) == (422, "Invalid")
        fields = [cause["field"] for cause in response.document["details"]["causes"]]
        assert all(field.startswith("spec.devices.requests[0]") for field in fields)


@pytest.mark.req("K4816-095")
async def test_stored_claims_keep_alternatives_when_the_gate_is_off() -> None:
    again = Restarts()
    async with again.on() as api:
        made = await api.create(_choices("c"))
        await api.create(claim("plain"))
    async with again.off("DRAPrioritizedList") as api:
        assert await api.get(path("resourceclaims", "c")) == made
        labelled = await api.patch(path("resourceclaims", "c"), {"metadata": {"labels": {"a": "b"}}})
        assert labelled["spec"] == made["spec"]
        await api.patch(path("resourceclaims", "plain"), {"metadata": {"labels": {"a": "b"}}})
        status = path("resourceclaims", "c", sub="status")
        written = await api.patch(status, {"status": {"allocation": allocation(request="gpu/small")}})
        assert written["status"]["allocation"]["devices"]["results"][0]["request"] == "gpu/small"
    async with again.on() as api:
        assert (await api.get(path("resourceclaims", "c")))["spec"] == made["spec"]
        await api.create(_choices("d"))


@pytest.mark.req("K4816-094", "K5075-154", "K5773-037", "K5491-042")
@pytest.mark.parametrize(
    "gate",
    [
        "DRAPrioritizedList",
        "DRAConsumableCapacity",
        "DRAResourceSlicePriority",
        "DRAListTypeAttributes",
        "DRAPartitionableDevices",
    ],
)
async def test_a_gate_changes_nothing_for_objects_that_do_not_use_it(gate: str) -> None:
    documents = [claim("c"), template("t"), resource_slice("s", attributes={"a": {"string": "x"}})]
    answers = []
    for gates in (without(gate), GateSet.from_defaults()):
        async with serving(gates=gates) as api:
            answers.append([_essence(await api.create(document)) for document in documents])
    assert answers[0] == answers[1]


def _essence(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "metadata"}


@pytest.mark.req("K5075-120", "K5075-155")
async def test_shares_are_dropped_with_a_warning_when_the_gate_is_off() -> None:
    async with serving(gates=without("DRAConsumableCapacity")) as api:
        response = await api.ask("POST", path("resourceslices"), _sharing("s"))
        assert response.code == 201
        device = response.document["spec"]["devices"][0]
        assert device == {"name": "gpu-0", "capacity": {"bandwidth": {"value": "10Gi"}}}
        assert "DRAConsumableCapacity" in response.warnings
        assert "allowMultipleAllocations" in response.warnings
        response = await api.ask("POST", path("resourceclaims"), _part("c"))
        assert "capacity" not in response.document["spec"]["devices"]["requests"][0]["exactly"]
        assert "DRAConsumableCapacity" in response.warnings
        made = template("t")
        made["spec"]["spec"]["devices"]["requests"] = _part("x")["spec"]["devices"]["requests"]
        response = await api.ask("POST", path("resourceclaimtemplates"), made)
        assert "capacity" not in response.document["spec"]["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.req("K5075-156", "K5075-157")
async def test_stored_shares_stay_when_the_gate_is_off_and_dropped_ones_do_not_return() -> None:
    again = Restarts()
    share = "11111111-1111-4111-8111-111111111111"
    async with again.on() as api:
        await api.create(_sharing("s"))
        await api.create(_part("c"))
        given = allocation(shareID=share, consumedCapacity={"bandwidth": "2Gi"})
        await api.patch(path("resourceclaims", "c", sub="status"), {"status": {"allocation": given}})
    async with again.off("DRAConsumableCapacity") as api:
        kept = await api.patch(path("resourceclaims", "c"), {"metadata": {"labels": {"a": "b"}}})
        (result,) = kept["status"]["allocation"]["devices"]["results"]
        assert (result["shareID"], result["consumedCapacity"]) == (share, {"bandwidth": "2Gi"})
        published = await api.get(path("resourceslices", "s"))
        assert published["spec"]["devices"][0]["allowMultipleAllocations"] is True
        await api.create(_part("dropped"))
    async with again.on() as api:
        dropped = await api.get(path("resourceclaims", "dropped"))
        assert "capacity" not in dropped["spec"]["devices"]["requests"][0]["exactly"]
        assert "capacity" in (await api.create(_part("new")))["spec"]["devices"]["requests"][0]["exactly"]


async def test_priorities_are_dropped_so_that_a_driver_can_notice() -> None:
    published = resource_slice("s")
    published["spec"]["pool"]["priority"] = 5
    async with serving(gates=without("DRAResourceSlicePriority")) as api:
        response = await api.ask("POST", path("resourceslices"), published)
        assert "priority" not in response.document["spec"]["pool"]
        assert "DRAResourceSlicePriority" in response.warnings


@pytest.mark.parametrize("way", ["create", "update", "merge", "apply"])
async def test_every_write_drops_gated_fields(way: str) -> None:
    plain = resource_slice("s", devices=1)
    async with serving(gates=without("DRAConsumableCapacity")) as api:
        where = path("resourceslices", "s")
        if way == "create":
            stored = await api.create(_sharing("s"))
        elif way == "update":
            await api.create(plain)
            stored = await api.put(_sharing("s"), where)
        elif way == "merge":
            await api.create(plain)
            stored = await api.patch(where, {"spec": _sharing("s")["spec"]}, MERGE)
        else:
            stored = await api.patch(where, _sharing("s"), APPLY, fieldManager="driver")
        assert "allowMultipleAllocations" not in stored["spec"]["devices"][0]
        assert await api.get(where) == stored


@pytest.mark.req("K3063-168")
async def test_pods_keep_their_claims_when_devices_are_switched_off() -> None:
    again = Restarts()
    async with again.on() as api:
        await api.create(claim("c"))
        await api.create(pod("old", claim_name="c"))
    async with again.off(*_everything()) as api:
        kept = await api.patch(path("pods", "old"), {"metadata": {"labels": {"a": "b"}}})
        assert kept["spec"]["resourceClaims"][0]["resourceClaimName"] == "c"
        new = await api.ask("POST", path("pods"), pod("new", claim_name="c"))
        assert "resourceClaims" not in new.document["spec"]
        assert "DynamicResourceAllocation" in new.warnings
        assert (await api.ask("GET", path("resourceclaims"))).code == 404
        await api.create(config("others-work"))
    async with again.on() as api:
        assert await api.names(path("resourceclaims")) == ["c"]


def _everything() -> list[str]:
    return [gate.name for gate, _ in GateSet.from_defaults()]


@pytest.mark.req("K3063-164")
async def test_without_devices_their_kinds_are_not_served() -> None:
    async with serving(gates=without(*_everything())) as api:
        groups = [group["name"] for group in (await api.get("/apis"))["groups"]]
        assert "resource.k8s.io" not in groups
        assert (await api.ask("POST", path("resourceclaims"), claim("c"))).code == 404


@pytest.mark.req("K3063-064")
async def test_a_claim_may_name_a_class_that_does_not_exist() -> None:
    async with serving() as api:
        await api.create(claim("c", requests=[request(deviceClassName="nowhere.example.com")]))


@pytest.mark.req("K4816-015")
async def test_an_alternative_has_no_admin_access() -> None:
    document = _choices("c")
    document["spec"]["devices"]["requests"][0]["firstAvailable"][0]["adminAccess"] = True
    async with serving() as api:
        strict = await api.ask("POST", path("resourceclaims"), document, fieldValidation="Strict")
        assert strict.code == 400
        assert 'unknown field "spec.devices.requests[0].firstAvailable[0].adminAccess"' in strict.message
        response = await api.ask("POST", path("resourceclaims"), document)
        assert "adminAccess" in response.warnings
        assert "adminAccess" not in response.document["spec"]["devices"]["requests"][0]["firstAvailable"][0]


@pytest.mark.req("K5075-166")
async def test_requests_for_claims_are_counted() -> None:
    async with serving() as api:
        await api.create(claim("c"))
        text = (await api.ask("GET", "/metrics")).document
        lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total")]
        assert any('resource="resourceclaims"' in line and 'code="201"' in line for line in lines), lines
