"""Checks of drivers for classic claims (KEP-3063), which are known by their uid and asked for one by one.

Theory of operation: only the driver's own controller can allocate such a claim, so it must run, and a class
of the driver must be named. A claim of the suite is allocated at once and reserved for a pod; the node part
of the driver is then asked as an agent would ask. A failure is a gRPC code here, and there are no entries.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dray.api.classic import ClassicClaim
from dray.api.classic.resource_claim import ALLOCATED
from dray.client.client import Client, Deletion
from dray.client.errors import Conflict, NotFound
from dray.client.object_refs import uid_of
from dray.client.patches import MergePatch
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import NAMESPACE, Terms, Ward
from dray.driver.conformance.driver_client import PATIENCE, Ref, said
from dray.driver.conformance.results import NotTried, Wrong
from dray.wire import grpc_services

_PAUSE: Final = 0.1
_AT_ONCE: Final = 8


class ClassicLine:
    """Calls the node part of a classic driver."""

    def __init__(self, channel: Any) -> None:
        self._stub = grpc_services.Stub(channel, grpc_services.CLASSIC)

    async def prepare(self, uid: str) -> tuple[str, ...]:
        """The CDI devices of a claim; `Wrong` when the driver refuses."""
        try:
            return await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            raise Wrong(f"NodePrepareResource: {said(refused)}") from None

    async def refused(self, uid: str, what: str) -> None:
        """`Wrong` unless the driver refuses to prepare."""
        try:
            names = await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            if refused.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Wrong(f"the driver does not answer any more: {said(refused)}") from None
            return
        raise Wrong(f"{what} was prepared: {', '.join(names) or 'without CDI devices'}")

    async def unprepare(self, uid: str, names: Sequence[str] = ()) -> None:
        """Give a claim back; `Wrong` when the driver refuses."""
        request = grpc_services.CLASSIC.message("NodeUnprepareResourceRequest")(
            resource_uid=uid, cdi_device=names
        )
        try:
            await self._stub.call("NodeUnprepareResource", request, timeout=PATIENCE)
        except grpc.aio.AioRpcError as refused:
            raise Wrong(f"NodeUnprepareResource: {said(refused)}") from None

    async def back(self) -> None:
        """Wait until the driver answers, after it was away."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                await self.unprepare(str(uuid.uuid4()))
                return
            except Wrong:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _prepare(self, uid: str) -> tuple[str, ...]:
        request = grpc_services.CLASSIC.message("NodePrepareResourceRequest")(resource_uid=uid)
        reply = await self._stub.call("NodePrepareResource", request, timeout=PATIENCE)
        return tuple(reply.cdi_device)


class ClassicWard(Ward):
    """Makes classic claims, which somebody else allocates."""

    def __init__(self, client: Client, terms: Terms, class_name: str) -> None:
        super().__init__(client, terms)
        self._class_name = class_name

    async def allocated(self) -> Ref:
        """A claim that its driver has allocated, and a pod that may use it."""
        if not self._class_name:
            raise NotTried("nobody said of which ResourceClass claims should be: give --class NAME")
        spec = {"resourceClassName": self._class_name, "allocationMode": "Immediate"}
        made = await self._client.create(
            {
                "apiVersion": "cdi.k8s.io/v1alpha1",
                "kind": "ResourceClaim",
                "metadata": {"name": self.fresh("claim"), "namespace": NAMESPACE},
                "spec": spec | ({"parameters": self._terms.parameters} if self._terms.parameters else {}),
            }
        )
        ref = Ref(NAMESPACE, made.metadata.name, uid_of(made))
        self._made.append(ref)
        for _ in range(int(PATIENCE / _PAUSE)):
            if (await self._client.get(ClassicClaim, ref.name, ref.namespace)).status.phase == ALLOCATED:
                pod = await self.pod(ref)
                owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
                await self._status(ref, {"reservedFor": [owner]})
                return ref
            await asyncio.sleep(_PAUSE)
        raise NotTried(
            f"a claim of class `{self._class_name}` was not allocated in {PATIENCE:g} seconds; the driver's "
            "controller must run, and have something left"
        )

    async def free(self, ref: Ref) -> None:
        await self._status(ref, {"reservedFor": None})

    async def remove(self, ref: Ref) -> None:
        """Delete a claim; its controller lets go of it."""
        with contextlib.suppress(Conflict, NotFound):
            await self._client.delete(ClassicClaim, ref.name, ref.namespace, Deletion(uid=ref.uid))
            for _ in range(int(PATIENCE / _PAUSE)):
                await self._client.get(ClassicClaim, ref.name, ref.namespace)
                await asyncio.sleep(_PAUSE)

    async def _status(self, ref: Ref, status: dict[str, Any]) -> None:
        change = MergePatch({"metadata": {"uid": ref.uid}, "status": status})
        await self._client.patch(ClassicClaim, ref.name, change, ref.namespace, subresource="status")


@dataclass
class ClassicBench:
    """The place where checks of classic drivers are done."""

    line: ClassicLine
    ward: ClassicWard
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    before: frozenset[str] = frozenset()
    """What was described before the claim was prepared, and stays."""

    async def ready(self) -> tuple[Ref, tuple[str, ...]]:
        self.before = frozenset() if self.cdi_dir is None else cdi_specs.described(self.cdi_dir)
        ref = await self.ward.allocated()
        return ref, await self.prepared(ref)

    async def prepared(self, ref: Ref) -> tuple[str, ...]:
        names = await self.line.prepare(ref.uid)
        cdi_specs.well_named(names)
        if self.cdi_dir is not None:
            cdi_specs.all_there(self.cdi_dir, names)
        return names

    async def given_back(self, ref: Ref, names: Sequence[str]) -> None:
        await self.line.unprepare(ref.uid, names)
        if self.cdi_dir is not None:
            cdi_specs.none_left(self.cdi_dir, frozenset(names) - self.before)

    async def restarted(self) -> None:
        if self.restart is None:
            raise NotTried("nobody said how to restart the driver: give --restart COMMAND or --supervised")
        await self.restart()
        await self.line.back()

    async def same(self, ref: Ref, names: Sequence[str]) -> None:
        again = await self.prepared(ref)
        if again != names:
            raise Wrong(f"the answer is {', '.join(again)} now, it was {', '.join(names)}")


async def prepare(bench: ClassicBench) -> None:
    """A claim that its controller allocated is prepared, and given back."""
    ref, names = await bench.ready()
    await bench.given_back(ref, names)


async def idempotent(bench: ClassicBench) -> None:
    """The same call again has the same answer."""
    ref, names = await bench.ready()
    await bench.same(ref, names)


async def concurrent(bench: ClassicBench) -> None:
    """Calls that come at once have one answer, and leave nothing when the claim is given back."""
    ref = await bench.ward.allocated()
    answers = await asyncio.gather(*(bench.prepared(ref) for _ in range(_AT_ONCE)))
    if len(set(answers)) > 1:
        raise Wrong(f"{_AT_ONCE} calls at once have {len(set(answers))} different answers")
    await bench.given_back(ref, answers[0])


async def unknown(bench: ClassicBench) -> None:
    """A claim that does not exist is refused, and the driver goes on."""
    await bench.line.refused(str(uuid.uuid4()), "a claim that does not exist")
    await bench.line.back()


async def twice(bench: ClassicBench) -> None:
    """A claim that was given back, or was never there, is given back without complaint."""
    ref, names = await bench.ready()
    await bench.given_back(ref, names)
    await bench.given_back(ref, names)
    await bench.line.unprepare(str(uuid.uuid4()))


async def late(bench: ClassicBench) -> None:
    """A call to prepare that arrives after the claim was given back and deleted is refused."""
    ref, names = await bench.ready()
    await bench.given_back(ref, names)
    await bench.ward.clear()
    await bench.line.refused(ref.uid, "a claim that was given back and deleted")


async def restart(bench: ClassicBench) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    ref, names = await bench.ready()
    await bench.restarted()
    await bench.same(ref, names)
    await bench.given_back(ref, names)


async def reboot(bench: ClassicBench) -> None:
    """When CDI files are gone after a restart, prepare writes them anew."""
    if bench.cdi_dir is None:
        raise NotTried("nobody said where the driver writes CDI files: give --cdi-dir")
    ref, names = await bench.ready()
    for path in cdi_specs.all_there(bench.cdi_dir, names):
        path.unlink()
    await bench.restarted()
    await bench.same(ref, names)
    await bench.given_back(ref, names)
