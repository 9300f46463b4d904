"""A driver that was taken over does no harm beyond its own devices on its own node (S-04).

The driver has the account, the roles and the token of a real one, as its manifests make them. Everything it
tries goes through the whole server, by every verb that writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dray.api.json_text import write_json
from dray.client.client import Client
from dray.driver import Driver
from dray.driver.deploy.manifests import build_manifests
from dray.driver.deploy.objects import DeploymentTarget, shorten_driver_name
from dray.store.memory import MemoryStore
from tests.contract.api import APPLY, JSON_PATCH, MERGE, Api, ServerResponse, path, serving
from tests.contract.documents import allocation, claim, consumer, node, pod, resource_slice
from tests.support.in_process_transport import InProcessTransport

SLICES = path("resourceslices")
OTHER = "nic.example.com"


class Gpu(Driver):
    """Driver A."""

    name = "gpu.example.com"


class Nic(Driver):
    """Driver B."""

    name = OTHER


ACCOUNT = shorten_driver_name(Gpu.name)


class DriverServer:
    """A cluster with two drivers on two nodes, and claims that have devices of both."""

    def __init__(self, api: Api) -> None:
        self.api = api
        user = f"system:serviceaccount:{ACCOUNT}:{ACCOUNT}-node"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{ACCOUNT}", "dray:on-node:node-a")
        self.driver = api.as_user(user, *groups)

    async def state(self) -> bytes:
        """Everything that the driver must not change."""
        kinds = [SLICES, path("resourceclaims"), path("serviceaccounts", namespace=ACCOUNT)]
        return write_json([await self.api.get(each) for each in kinds])

    async def tried(
        self, method: str, where: str, body: Any, kind: str = "application/json"
    ) -> ServerResponse:
        query = {"fieldManager": "evil", "force": "true"} if kind == APPLY else {}
        return await self.driver.ask(method, where, body, headers={"content-type": kind}, **query)


def nic_slice(name: str, node_name: str = "node-a") -> dict[str, Any]:
    made = resource_slice(name, node_name)
    made["spec"]["driver"] = OTHER
    return made


async def _allocate(api: Api, name: str, *, node_name: str) -> None:
    made_pod = await api.create(pod(f"pod-{name}"))
    await api.create(claim(name))
    got = allocation("gpu-0", node=node_name)
    other = {"request": "gpu", "driver": OTHER, "pool": node_name, "device": "gpu-0"}
    got["devices"]["results"].append(other)
    status = {"allocation": got, "reservedFor": [consumer(made_pod)]}
    await api.patch(path("resourceclaims", name, sub="status"), {"status": status})


@asynccontextmanager
async def open_driver_server() -> AsyncIterator[DriverServer]:
    store = MemoryStore()
    async with asyncio.timeout(60), serving(store) as api:
        for name in ("node-a", "node-b"):
            await api.create(node(name))
        for driver in (Gpu(), Nic()):
            for document in build_manifests(driver, DeploymentTarget("registry.example.com/driver:1")):
                await _create(api, document)
        for each in (
            resource_slice("gpu-a"),
            resource_slice("gpu-b", "node-b"),
            nic_slice("nic-a"),
            nic_slice("nic-b", "node-b"),
        ):
            await api.create(each, SLICES)
        await _allocate(api, "here", node_name="node-a")
        await _allocate(api, "there", node_name="node-b")
        yield DriverServer(api)
    await store.close()


async def _create(api: Api, document: dict[str, Any]) -> None:
    admin = Client(InProcessTransport(api.app, "admin", ("system:masters", "system:authenticated")))
    await admin.create(document)


def run(scenario: Callable[[DriverServer], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with open_driver_server() as found:
            await scenario(found)

    asyncio.run(bounded())


Attempt = tuple[str, str, Any, str]


def _with_status(name: str, status: dict[str, Any]) -> list[Attempt]:
    """A change of a claim's status, by every verb that could make it."""
    where = path("resourceclaims", name, sub="status")
    bare = path("resourceclaims", name)
    operations = [
        {"op": "add", "path": f"/status/{field}", "value": value}
        if value is not None
        else {"op": "remove", "path": f"/status/{field}"}
        for field, value in status.items()
    ]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    given = {field: value for field, value in status.items() if value is not None}
    return [
        ("PATCH", where, {"status": status}, MERGE),
        ("PATCH", where, operations, JSON_PATCH),
        ("PATCH", where, {**head, "status": given}, APPLY),
        ("PATCH", bare, {"status": status}, MERGE),
    ]


def _device(driver: str, node_name: str) -> dict[str, Any]:
    return {"driver": driver, "pool": node_name, "device": "gpu-0", "data": {"stolen": True}}


async def _refused(found: DriverServer, attempts: list[Attempt]) -> None:
    before = await found.state()
    for method, where, body, kind in attempts:
        response = await found.tried(method, where, body, kind)
        assert await found.state() == before, f"{method} {where} {kind} changed something"
        if not (kind == MERGE and not where.endswith("/status") and "status" in (body or {})):
            # A status that is sent to the object itself is left out; everything else is refused in words, by
            # the rules of the object where it breaks these already.
            assert response.code in (403, 422), (method, where, kind, response.document)


def test_s04_a_driver_publishes_its_devices_and_their_status_on_its_node() -> None:
    """What it may do, so that the rest of these tests is about something."""

    async def scenario(found: DriverServer) -> None:
        assert (await found.tried("POST", SLICES, resource_slice("more"))).code == 201
        changed = {"spec": {"devices": [{"name": "gpu-7"}]}}
        assert (await found.tried("PATCH", f"{SLICES}/gpu-a", changed, MERGE)).code == 200
        assert (await found.tried("DELETE", f"{SLICES}/more", None)).code == 200
        status = {"status": {"devices": [_device(Gpu.name, "node-a")]}}
        where = path("resourceclaims", "here", sub="status")
        assert (await found.tried("PATCH", where, status, MERGE)).code == 200

    run(scenario)


@pytest.mark.parametrize("name", ["here", "there"])
def test_s04_a_driver_does_not_change_the_status_of_another_drivers_devices(name: str) -> None:
    where = {"here": "node-a", "there": "node-b"}[name]
    run(lambda found: _refused(found, _with_status(name, {"devices": [_device(OTHER, where)]})))


def test_s04_a_driver_does_not_remove_the_status_of_another_drivers_devices() -> None:
    async def scenario(found: DriverServer) -> None:
        response = {"status": {"devices": [_device(OTHER, "node-a")]}}
        await found.api.patch(path("resourceclaims", "here", sub="status"), response)
        attempts = _with_status("here", {"devices": None}) + _with_status("here", {"devices": []})
        attempts = [each for each in attempts if each[3] != APPLY]  # what it never owned it cannot give up
        await _refused(found, attempts)

    run(scenario)


def test_s04_a_driver_does_not_change_the_status_of_its_own_devices_on_another_node() -> None:
    run(lambda found: _refused(found, _with_status("there", {"devices": [_device(Gpu.name, "node-b")]})))


@pytest.mark.parametrize("name", ["here", "there"])
@pytest.mark.parametrize(
    "status",
    [
        {"allocation": None},
        {"allocation": allocation("gpu-1")},
        {"reservedFor": None},
        {"reservedFor": [{"resource": "pods", "name": "evil", "uid": "evil"}]},
        {"allocation": None, "reservedFor": None},
    ],
    ids=["free", "take another", "forget users", "invent a user", "both"],
)
def test_s04_a_driver_writes_neither_allocation_nor_reservations(name: str, status: dict[str, Any]) -> None:
    async def scenario(found: DriverServer) -> None:
        attempts = _with_status(name, status)
        if None in status.values():
            attempts = [each for each in attempts if each[3] != APPLY]
        await _refused(found, attempts)

    run(scenario)


@pytest.mark.parametrize(
    "made",
    [nic_slice("evil"), nic_slice("evil", "node-b"), resource_slice("evil", "node-b")],
    ids=["another driver", "another driver elsewhere", "itself elsewhere"],
)
def test_s04_a_driver_publishes_neither_for_another_driver_nor_for_another_node(made: dict[str, Any]) -> None:
    run(
        lambda found: _refused(
            found, [("POST", SLICES, made, "application/json"), ("PATCH", f"{SLICES}/evil", made, APPLY)]
        )
    )


def test_s04_a_driver_publishes_nothing_that_many_nodes_reach() -> None:
    async def scenario(found: DriverServer) -> None:
        for where in ({"allNodes": True}, {"nodeSelector": _RACK}):
            made = resource_slice("evil")
            del made["spec"]["nodeName"]
            made["spec"] |= where
            await _refused(found, [("POST", SLICES, made, "application/json")])

    run(scenario)


_RACK = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]}]}


@pytest.mark.parametrize("name", ["gpu-b", "nic-a", "nic-b"])
def test_s04_a_driver_neither_changes_nor_deletes_slices_that_are_not_its_own(name: str) -> None:
    where = f"{SLICES}/{name}"
    change: dict[str, Any] = {"spec": {"devices": []}}
    operations = [{"op": "remove", "path": "/spec/devices"}]
    run(
        lambda found: _refused(
            found,
            [
                ("PATCH", where, change, MERGE),
                ("PATCH", where, operations, JSON_PATCH),
                ("DELETE", where, None, "application/json"),
            ],
        )
    )


def test_s04_a_driver_does_not_delete_the_collection_of_slices() -> None:
    run(lambda found: _refused(found, [("DELETE", SLICES, None, "application/json")]))


def test_s04_a_driver_does_not_bind_its_account_to_other_drivers() -> None:
    where = path("serviceaccounts", f"{ACCOUNT}-node", namespace=ACCOUNT)
    change = {"metadata": {"annotations": {"dray.dev/driver": OTHER}}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    other = path(
        "serviceaccounts",
        f"{shorten_driver_name(OTHER)}-node",
        namespace=shorten_driver_name(OTHER),
        sub="token",
    )
    run(
        lambda found: _refused(
            found, [("PATCH", where, change, MERGE), ("POST", other, token, "application/json")]
        )
    )


@pytest.mark.parametrize(
    "name",
    [
        "admin",
        "system:node:node-b",
        f"system:serviceaccount:{shorten_driver_name(OTHER)}:{shorten_driver_name(OTHER)}-node",
    ],
)
def test_s04_a_driver_does_not_impersonate(name: str) -> None:
    async def scenario(found: DriverServer) -> None:
        before = await found.state()
        response = await found.driver.ask(
            "POST",
            SLICES,
            nic_slice("evil"),
            headers={"Impersonate-User": name, "content-type": "application/json"},
        )
        assert response.code == 403
        assert await found.state() == before

    run(scenario)
