"""A server is restored from a backup while a node holds devices: the node reports them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dray.api.core import Node
from dray.api.preparation import ACCOUNTED_ANNOTATION, NO_RESTORE, Preparation, PreparationDevice
from dray.api.resource import ResourceClaim
from dray.claims.ledger import restore_marker
from dray.client.client import DeleteOptions
from dray.client.errors import ConflictError
from dray.client.patches import MergePatch
from dray.cluster.services.api_server import RunningServer
from dray.node.claims.outcomes import ClaimsReady
from dray.node.claims.record import DriverPart, NodeClaimStage, RecordedClaim, RecordedDevice
from dray.node.claims.restore_accounting import list_held_devices
from dray.node.plugins.driver_interface import PreparedDevice
from dray.server.http.limits import ServerLimits
from dray.store import Delete, Put, Store
from dray.store.memory import MemoryStore
from dray.telemetry.metrics import MetricsRegistry
from tests.contract.api import serving
from tests.contract.documents import node, resource_slice
from tests.contract.servers import Reach
from tests.unit.node.claims.node_site import GPU, NODE, Site, result, why

OTHER = "node-b"
FABRIC = "fabric"


class Rewound(Site):
    """A site whose server can be taken back to what it once was."""

    store: Store
    _copy: dict[bytes, bytes]

    async def copy(self) -> None:
        self._copy = {entry.key: entry.value for entry in (await self.store.range(b"")).entries}

    async def restore(self, name: str = "r1") -> None:
        """The server is what it was at the time of the copy, and knows that."""
        mark = restore_marker.encode_marker(restore_marker.RestoreMarker(id=name, at="2026-01-01T00:00:00Z"))
        now = {entry.key: entry.value for entry in (await self.store.range(b"")).entries}
        before = self._copy | {restore_marker.MARKER_KEY: mark}
        put = [Put(key, value) for key, value in before.items() if now.get(key) != value]
        await self.store.txn([], [*put, *(Delete(key) for key in now if key not in before)])

    async def noted(self) -> str:
        seen = await self.client.get(Node, NODE)
        found = seen.metadata.annotations[ACCOUNTED_ANNOTATION]
        self.notes[ACCOUNTED_ANNOTATION] = found
        return found

    async def others_noted(self, name: str = "r1") -> None:
        """The other node has said what it has."""
        note = MergePatch({"metadata": {"annotations": {ACCOUNTED_ANNOTATION: name}}})
        await self.client.patch(Node, OTHER, note)

    async def said(self) -> dict[str, tuple[str, ...]]:
        """What this node says it has: the devices of each claim."""
        found = (await self.client.list(Preparation)).items
        return {each.spec.claim.name: tuple(d.device for d in each.spec.devices) for each in found}

    async def force_delete(self, name: str) -> None:
        """A claim goes, whoever holds on to it."""
        await self.client.patch(
            ResourceClaim, name, MergePatch({"metadata": {"finalizers": None}}), "default"
        )
        await self.client.delete(ResourceClaim, name, "default", DeleteOptions(grace_seconds=0))


@asynccontextmanager
async def rewindable(directory: Path) -> AsyncIterator[Rewound]:
    """A server, this node and another one, and a pool that both reach."""
    store = MemoryStore()
    async with serving(store, limits=ServerLimits(restored_seconds=0)) as api:
        started = RunningServer("", Path(), "", api.app, MetricsRegistry({}), b"")
        reach = Reach("inside", started)
        here = Rewound(reach, directory)
        here.store = store
        here.notes[ACCOUNTED_ANNOTATION] = NO_RESTORE
        for name in (NODE, OTHER):
            document = node(name)
            document["metadata"]["annotations"] = {ACCOUNTED_ANNOTATION: NO_RESTORE}
            await here.make(document)
        shared = resource_slice("f", FABRIC)
        del shared["spec"]["nodeName"]
        shared["spec"]["allNodes"] = True
        await here.make(shared)
        yield here
        await reach.close()
    await store.close()


def far(device: str = "gpu-0") -> dict[str, object]:
    """A device that both nodes reach."""
    return result(device=device) | {"pool": FABRIC}


async def test_a_claim_missing_in_the_backup_keeps_its_device_until_it_is_released(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.copy()
        await here.create_claim("c", far())
        pod = await here.create_bound_pod("a", "c")
        await here.prepare_all(pod)
        await here.restore()
        assert await here.said() == {}
        await here.preparer.restore_accounting.report_after_restore()
        assert (await here.said(), await here.noted()) == ({"c": ("gpu-0",)}, "r1")
        await here.others_noted()
        with pytest.raises(ConflictError, match=f"quarantined on node {NODE}"):
            await here.create_claim("next", far())
        assert await here.preparer.prepare(pod) == ClaimsReady(), "what is prepared runs on"
        await here.release_all(pod)
        await here.until(here.said, lambda said: not said)
        await here.set_allocation("next", far())
        assert here.preparer.record.claims == ()


async def test_a_claim_of_the_copy_whose_preparation_is_newer_is_covered_again(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.create_claim("c", far())
        pod = await here.create_bound_pod("a", "c")
        await here.copy()
        await here.prepare_all(pod)
        await here.restore()
        await here.preparer.restore_accounting.report_after_restore()
        assert await here.said() == {"c": ("gpu-0",)}
        await here.others_noted()
        await here.force_delete("c")
        with pytest.raises(ConflictError, match="quarantined"):
            await here.create_claim("next", far())


async def test_devices_that_differ_from_the_backup_are_reported(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.create_claim("c", far("gpu-0"))
        pod = await here.create_bound_pod("a", "c")
        await here.prepare_all(pod)
        await here.copy()
        await here.release_all(pod)
        await here.until(here.said, lambda said: not said)
        status = MergePatch({"status": {"allocation": None, "reservedFor": None}})
        await here.client.patch(ResourceClaim, "c", status, "default", subresource="status")
        await here.set_allocation("c", far("gpu-1"))
        await here.reserve("c", "a")
        await here.prepare_all(pod)
        await here.restore()
        await here.preparer.restore_accounting.report_after_restore()
        await here.others_noted()
        assert await here.said() == {"c": ("gpu-1",)}
        with pytest.raises(ConflictError, match="quarantined"):
            await here.create_claim("next", far("gpu-1"))


async def test_claims_released_since_the_backup_are_withdrawn(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.create_claim("c", far())
        pod = await here.create_bound_pod("a", "c")
        await here.prepare_all(pod)
        await here.copy()
        await here.release_all(pod)
        await here.until(here.said, lambda said: not said)
        await here.restore()
        assert await here.said() == {"c": ()}
        await here.preparer.restore_accounting.report_after_restore()
        assert (await here.said(), await here.noted()) == ({}, "r1")


async def _given_to_the_other(here: Rewound) -> None:
    """In the copy a claim is prepared here; since then its device went to a claim of the other node."""
    await here.create_claim("c", far())
    pod = await here.create_bound_pod("a", "c")
    async with here.agent():
        await here.prepare_all(pod)
        await here.copy()
        await here.release_all(pod)
        await here.until(here.said, lambda said: not said)
    here.gpu.calls.clear()


async def _prepared_only_when_all_were_heard(here: Rewound) -> None:
    pod = await here.pod("a")
    refused = why(await here.preparer.prepare(pod))
    assert refused[0] == "PreparationNotWritten"
    assert OTHER in refused[1]
    await here.preparer.restore_accounting.report_after_restore()
    assert await here.noted() == "r1"
    assert why(await here.preparer.prepare(pod))[0] == "PreparationNotWritten"
    assert ("prepare", ("c",)) not in here.gpu.calls, "the other node may have the device"
    await here.others_noted()
    await here.prepare_all(pod)
    assert here.gpu.calls[-1] == ("prepare", ("c",))


async def test_a_preparation_of_the_past_does_not_let_an_agent_that_ran_on_prepare(tmp_path: Path):
    async with rewindable(tmp_path) as here:
        await _given_to_the_other(here)
        async with here.agent(await here.pod("a")):
            await here.restore()
            assert await here.list_announced() == ["c"]
            await _prepared_only_when_all_were_heard(here)


async def test_a_preparation_of_the_past_does_not_let_an_agent_that_starts_prepare(tmp_path: Path):
    async with rewindable(tmp_path) as here:
        await _given_to_the_other(here)
        await here.restore()
        async with here.agent(await here.pod("a")):
            await here.until(here.said, lambda said: not said)
            await _prepared_only_when_all_were_heard(here)


async def test_an_agent_reports_its_record_at_its_start(tmp_path: Path):
    async with rewindable(tmp_path) as here:
        await here.copy()
        await here.create_claim("c", far())
        pod = await here.create_bound_pod("a", "c")
        async with here.agent():
            await here.prepare_all(pod)
        await here.restore()
        async with here.agent():
            await here.preparer.restore_accounting.report_after_restore()
            assert await here.said() == {"c": ("gpu-0",)}


async def test_it_is_tried_until_the_server_has_taken_everything(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.copy()
        await here.create_claim("c", far())
        await here.prepare_all(await here.create_bound_pod("a", "c"))
        await here.restore()
        here.cut_connection("preparations", methods="POST")
        telling = asyncio.create_task(here.preparer.restore_accounting.run())
        await here.until(
            _lines(here), lambda log: any("cannot report prepared devices" in line for line in log)
        )
        assert (await here.said(), await here.noted()) == ({}, NO_RESTORE)
        here.restore_connection()
        here.preparer.restore_accounting.trigger()
        await here.until(here.said, lambda said: said == {"c": ("gpu-0",)})
        await here.until(here.noted, lambda noted: noted == "r1")
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def _lines(here: Rewound):
    async def lines() -> list[str]:
        return here.log

    return lines


async def test_without_a_restore_nothing_is_reported(tmp_path: Path):
    async with rewindable(tmp_path) as here, here.agent():
        await here.create_claim("c", far())
        await here.prepare_all(await here.create_bound_pod("a", "c"))
        here.cut_connection(methods="POST PUT PATCH DELETE")
        await here.preparer.restore_accounting.report_after_restore()
        assert await here.said() == {"c": ()}


def held(parts: Iterable[DriverPart]) -> RecordedClaim:
    return RecordedClaim(uid="u", namespace="default", name="c", parts=tuple(parts))


def test_devices_without_a_call_and_admin_access_are_not_held():
    keys = (
        RecordedDevice(pool="p", device="d0", request="a"),
        RecordedDevice(pool="p", device="d0", request="b"),
        RecordedDevice(pool="p", device="d1", request="a", share_id="s"),
        RecordedDevice(pool="p", device="d2", request="a", admin=True),
    )
    prepared = PreparedDevice(request_names=("a",), pool="p", device="d0", cdi=())
    parts = [
        DriverPart(driver=GPU, state=NodeClaimStage.PREPARED, wanted=keys, devices=(prepared,)),
        DriverPart(driver="late.example.com", wanted=keys),
        DriverPart(driver="slow.example.com", state=NodeClaimStage.UNPREPARING, wanted=keys[:1]),
    ]
    assert list_held_devices(held(parts)) == (
        PreparationDevice(driver=GPU, pool="p", device="d0"),
        PreparationDevice(driver=GPU, pool="p", device="d1", share_id="s"),
        PreparationDevice(driver="slow.example.com", pool="p", device="d0"),
    )
