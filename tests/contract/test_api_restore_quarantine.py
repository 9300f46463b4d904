"""The quarantine after a restore: devices wait for the reports of nodes that may have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE
from dray.claims.ledger import restore_marker
from dray.server.http.limits import ServerLimits
from dray.store import Put, Store
from dray.store.memory import MemoryStore
from tests.contract.api import MERGE, Api, Document, ServerResponse, path, serving
from tests.contract.documents import allocation, claim, consumer, node, pod, resource_slice

AT_ONCE, LATER = ServerLimits(restored_seconds=0), ServerLimits(restored_seconds=3600)
ALONE, SHARED = "node-a", "fabric"
"""The pool of one node, and one that all nodes reach."""


def _everywhere(document: Document) -> Document:
    spec = {key: value for key, value in document["spec"].items() if key != "nodeName"}
    return document | {"spec": spec | {"allNodes": True}}


@asynccontextmanager
async def after_restore(limits: ServerLimits = AT_ONCE, *nodes: str) -> AsyncIterator[Api]:
    """A server on a restored store with these nodes, two pools and three claims."""
    kept = MemoryStore()
    async with serving(kept) as api:
        for name in nodes or ("node-a", "node-b"):
            await api.create(_agent(name))
        await api.create(resource_slice("s"))
        await api.create(_everywhere(resource_slice("f", SHARED)))
        for name in ("c0", "c1", "c2"):
            await api.create(claim(name))
    await mark(kept)
    async with serving(kept, limits=limits) as api:
        yield api
    await kept.close()


async def mark(store: Store, name: str = "r1") -> None:
    """Write the marker of a restore."""
    left = restore_marker.RestoreMarker(id=name, at="2026-01-01T00:00:00Z")
    await store.txn([], [Put(restore_marker.MARKER_KEY, restore_marker.encode_marker(left))])


def _agent(name: str) -> Document:
    document = node(name)
    document["metadata"]["annotations"] = {ACCOUNTED_ANNOTATION: NO_RESTORE}
    return document


async def allocate(
    api: Api, name: str, device: str = "gpu-0", pool: str = SHARED, **more: Any
) -> ServerResponse:
    given = allocation(device, node=pool, **more)
    given.pop("nodeSelector")
    body = {"status": {"allocation": given}}
    where = path("resourceclaims", name, sub="status")
    return await api.ask("PATCH", where, body, headers={"content-type": MERGE})


def as_node(api: Api, name: str) -> Api:
    return api.as_user(f"system:node:{name}", "system:nodes")


async def mark_reported(api: Api, name: str, what: str = "r1") -> None:
    """Annotate a node as having reported."""
    note = {"metadata": {"annotations": {ACCOUNTED_ANNOTATION: what}}}
    await as_node(api, name).patch(path("nodes", name), note)


def preparation(on: str, uid: str, device: str = "", pool: str = SHARED, **more: Any) -> Document:
    """A preparation; with a device, the report of a node after a restore."""
    spec: Document = {"nodeName": on, "claim": {"namespace": "default", "name": f"of-{uid}", "uid": uid}}
    if device:
        spec["devices"] = [{"driver": "gpu.example.com", "pool": pool, "device": device, **more}]
    kind = {"apiVersion": "dray.dev/v1alpha1", "kind": "Preparation"}
    return {**kind, "metadata": {"name": f"{uid}.{on}"}, "spec": spec}


PREPARATIONS = "/apis/dray.dev/v1alpha1/preparations"


async def report(api: Api, response: Document) -> ServerResponse:
    return await as_node(api, response["spec"]["nodeName"]).ask("POST", PREPARATIONS, response)


def causes(response: ServerResponse) -> set[str]:
    return {cause["reason"] for cause in response.document["details"]["causes"]}


async def is_ledger_consistent(api: Api) -> bool:
    report = await api.get("/dray/ledger")
    return bool(report["agrees"])


async def is_quarantined(api: Api) -> bool:
    return not (await api.get("/dray/restored"))["settled"]


async def test_devices_of_several_nodes_are_quarantined_until_all_nodes_have_reported() -> None:
    async with after_restore() as api:
        refused = await allocate(api, "c0")
        assert (refused.code, causes(refused)) == (409, {"NodeNotHeard"})
        assert "nodes node-a, node-b" in refused.message
        assert "dray fence node node-a" in refused.message
        await mark_reported(api, "node-a")
        assert "node node-b, which has" in (await allocate(api, "c0")).message
        await mark_reported(api, "node-b", "of an earlier restore")
        assert (await allocate(api, "c0")).code == 409
        await mark_reported(api, "node-b")
        assert (await allocate(api, "c0")).code == 200


async def test_devices_of_one_node_are_quarantined_until_that_node_has_reported() -> None:
    async with after_restore(LATER) as api:
        await mark_reported(api, "node-b")
        refused = await allocate(api, "c0", pool=ALONE)
        assert causes(refused) == {"NodeNotHeard"}
        assert "node-b" not in refused.message
        await mark_reported(api, "node-a")
        assert (await allocate(api, "c0", pool=ALONE)).code == 200


async def test_nodes_that_the_backup_does_not_contain_have_a_grace_period() -> None:
    async with after_restore(LATER) as api:
        await mark_reported(api, "node-a")
        await mark_reported(api, "node-b")
        refused = await allocate(api, "c0")
        assert causes(refused) == {"NodeNotHeard"}
        assert "may not know all of them" in refused.message
        assert await is_quarantined(api)


async def test_nodes_without_a_dray_agent_are_not_awaited() -> None:
    async with after_restore(AT_ONCE, "node-a") as api:
        await api.create(node("kubelet"))
        await mark_reported(api, "node-a")
        assert (await allocate(api, "c0")).code == 200


async def test_a_node_with_a_preparation_is_awaited_without_a_node_object() -> None:
    async with after_restore(AT_ONCE, "node-a") as api:
        await mark_reported(api, "node-a")
        assert (await allocate(api, "c0")).code == 200
        lost = preparation("lost", (await api.get(path("resourceclaims", "c0")))["metadata"]["uid"])
        lost["spec"]["claim"]["name"] = "c0"
        await api.create(lost, PREPARATIONS)
        # As the copy of a server would have it: with the preparation of a node that is not there any more.
        await mark(api.store, "r2")
        await mark_reported(api, "node-a", "r2")
        assert "node lost" in (await allocate(api, "c1", "gpu-1")).message
        await api.delete(f"{PREPARATIONS}/{lost['metadata']['name']}")
        assert (await allocate(api, "c1", "gpu-1")).code == 200


async def test_an_allocated_claim_keeps_and_releases_its_devices_in_quarantine() -> None:
    async with after_restore() as api:
        await mark_reported(api, "node-a")
        assert (await allocate(api, "c0", pool=ALONE)).code == 200
        where = path("resourceclaims", "c0", sub="status")
        user = consumer(await api.create(pod("p", claim_name="c0")))
        await api.patch(where, {"status": {"reservedFor": [user]}})
        await api.patch(where, {"status": {"allocation": None, "reservedFor": None}})
        assert (await allocate(api, "c1", pool=ALONE)).code == 200


async def test_a_settled_quarantine_does_not_start_again() -> None:
    store = MemoryStore()
    await mark(store)
    async with serving(store, limits=AT_ONCE) as api:
        await api.until("/dray/restored", lambda response: response.document["settled"])
    async with serving(store, limits=LATER) as api:
        await api.create(_agent("new"))
        await api.create(_everywhere(resource_slice("f", SHARED)))
        await api.create(claim("c0"))
        assert (await allocate(api, "c0")).code == 200
    await store.close()


async def test_reported_devices_are_held_though_their_claim_does_not_exist() -> None:
    async with after_restore() as api:
        assert (await report(api, preparation("node-b", "u9", "gpu-0"))).code == 201
        await mark_reported(api, "node-a")
        await mark_reported(api, "node-b")
        refused = await allocate(api, "c0")
        assert causes(refused) == {"DeviceQuarantined"}
        assert "node node-b" in refused.message
        assert (await allocate(api, "c1", "gpu-1")).code == 200
        assert await is_ledger_consistent(api)
        await as_node(api, "node-b").delete(f"{PREPARATIONS}/u9.node-b")
        assert (await allocate(api, "c0")).code == 200
        assert await is_ledger_consistent(api)


async def test_a_restored_claim_is_not_prepared_while_another_node_has_its_device() -> None:
    async with after_restore() as api:
        await mark_reported(api, "node-a")
        await mark_reported(api, "node-b")
        assert (await allocate(api, "c0")).code == 200
        await mark(api.store, "r2")
        mine = preparation("node-a", (await api.get(path("resourceclaims", "c0")))["metadata"]["uid"])
        mine["spec"]["claim"]["name"] = "c0"
        await api.create(pod("p", claim_name="c0") | {"spec": _bound(pod("p", claim_name="c0"), "node-a")})
        await mark_reported(api, "node-a", "r2")
        assert causes(await report(api, mine)) == {"NodeNotHeard"}, "node-b was not heard of yet"
        assert (await report(api, preparation("node-b", "u9", "gpu-0"))).code == 201
        await mark_reported(api, "node-b", "r2")
        assert causes(await report(api, mine)) == {"DeviceQuarantined"}
        assert await is_ledger_consistent(api), "that both are in the row is no mistake: one of them waits"
        await as_node(api, "node-b").delete(f"{PREPARATIONS}/u9.node-b")
        assert (await report(api, mine)).code == 201
        assert await is_ledger_consistent(api)


def _bound(document: Document, where: str) -> Document:
    spec: Document = document["spec"]
    return spec | {"nodeName": where}


async def test_a_node_may_report_the_devices_of_a_claim_again() -> None:
    async with after_restore() as api:
        first = (await report(api, preparation("node-b", "u9", "gpu-0"))).document
        changed = first | {"spec": preparation("node-b", "u9", "gpu-1")["spec"]}
        assert (await as_node(api, "node-b").ask("PUT", f"{PREPARATIONS}/u9.node-b", changed)).code == 200
        await mark_reported(api, "node-a")
        await mark_reported(api, "node-b")
        assert causes(await allocate(api, "c0", "gpu-1")) == {"DeviceQuarantined"}
        assert (await allocate(api, "c0", "gpu-0")).code == 200
        assert await is_ledger_consistent(api)


async def test_an_unknown_share_counts_as_the_rest_of_the_device() -> None:
    async with after_restore() as api:
        shared = _everywhere(
            resource_slice(
                "m", "lent", 1, allowMultipleAllocations=True, capacity={"memory": {"value": "40Gi"}}
            )
        )
        await api.create(shared)
        assert (await report(api, preparation("node-b", "u9", "gpu-0", "lent", shareID=_SHARE))).code == 201
        await mark_reported(api, "node-a")
        await mark_reported(api, "node-b")
        part: Document = {"shareID": _SHARE[:-1] + "2", "consumedCapacity": {"memory": "1Gi"}}
        refused = await allocate(api, "c0", pool="lent", **part)
        assert causes(refused) == {"DeviceQuarantined"}
        await as_node(api, "node-b").delete(f"{PREPARATIONS}/u9.node-b")
        assert (await allocate(api, "c0", pool="lent", **part)).code == 200


_SHARE = "a671734a-e8e5-11e4-8fde-42010af09321"


async def test_nodes_report_only_after_a_restore_and_only_devices_they_can_have() -> None:
    async with after_restore() as api:
        refused = await report(api, preparation("node-b", "u9", "gpu-0", ALONE))
        assert refused.code == 403
        assert "which is on node node-a" in refused.message
        assert (
            await as_node(api, "node-a").ask("POST", PREPARATIONS, preparation("node-b", "u9", "gpu-0"))
        ).code == 403
        await mark_reported(api, "node-b")
        refused = await report(api, preparation("node-b", "u9", "gpu-0"))
        assert refused.code == 403, "the node has reported already"
        assert (await report(api, preparation("node-a", "u9", "gpu-0", ALONE))).code == 201
    async with serving() as api:
        await api.create(node("node-a"))
        assert (await report(api, preparation("node-a", "u9", "gpu-0"))).code == 403, "there was no restore"


async def test_an_administrator_settles_the_quarantine_and_a_node_does_not() -> None:
    async with after_restore(LATER) as api:
        restored = await as_node(api, "node-a").get("/dray/restored")
        assert restored == {"kind": "Restored", "id": "r1", "at": "2026-01-01T00:00:00Z", "settled": ""}
        for method, where in (("GET", "/dray/restored/nodes"), ("POST", "/dray/restored/settle")):
            assert (await as_node(api, "node-a").ask(method, where)).code == 403
        assert (await api.get("/dray/restored/nodes"))["awaited"] == ["node-a", "node-b"]
        assert (await api.ask("POST", "/dray/restored/settle")).code == 200
        assert not await is_quarantined(api)
        assert (await allocate(api, "c0")).code == 200
        assert (await report(api, preparation("node-b", "u9", "gpu-1"))).code == 201, (
            "who comes late is heard all the same"
        )
        assert causes(await allocate(api, "c1", "gpu-1")) == {"DeviceQuarantined"}
