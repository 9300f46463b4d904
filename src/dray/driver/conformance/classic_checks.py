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

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED
from dray.client.client import Client, DeleteOptions
from dray.client.errors import ConflictError, NotFoundError
from dray.client.object_refs import get_uid
from dray.client.patches import MergePatch
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.claims import NAMESPACE, ConformanceClaims, ConformanceClaimSettings
from dray.driver.conformance.driver_client import CALL_TIMEOUT_SECONDS, ConformanceClaimRef, format_rpc_error
from dray.driver.conformance.results import CheckSkippedError, NotConformantError
from dray.wire import grpc_services

_POLL_SECONDS: Final = 0.1
_CONCURRENT_CALLS: Final = 8


class ConformanceClassicClient:
    """Calls the node part of a classic driver."""

    def __init__(self, channel: Any) -> None:
        self._stub = grpc_services.GrpcStub(channel, grpc_services.CLASSIC_V1ALPHA1)

    async def prepare(self, uid: str) -> tuple[str, ...]:
        """The CDI devices of a claim; `NotConformantError` when the driver refuses."""
        try:
            return await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(f"NodePrepareResource: {format_rpc_error(refused)}") from None

    async def expect_refusal(self, uid: str, what: str) -> None:
        """`NotConformantError` unless the driver refuses to prepare."""
        try:
            names = await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            if refused.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NotConformantError(
                    f"the driver does not answer any more: {format_rpc_error(refused)}"
                ) from None
            return
        raise NotConformantError(f"{what} was prepared: {', '.join(names) or 'without CDI devices'}")

    async def unprepare(self, uid: str, names: Sequence[str] = ()) -> None:
        """Give a claim back; `NotConformantError` when the driver refuses."""
        request = grpc_services.CLASSIC_V1ALPHA1.get_message_class("NodeUnprepareResourceRequest")(
            resource_uid=uid, cdi_device=names
        )
        try:
            await self._stub.call("NodeUnprepareResource", request, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(f"NodeUnprepareResource: {format_rpc_error(refused)}") from None

    async def wait_until_serving(self) -> None:
        """Wait until the driver answers, after it was away."""
        end = asyncio.get_running_loop().time() + CALL_TIMEOUT_SECONDS
        while True:
            try:
                await self.unprepare(str(uuid.uuid4()))
                return
            except NotConformantError:
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _prepare(self, uid: str) -> tuple[str, ...]:
        request = grpc_services.CLASSIC_V1ALPHA1.get_message_class("NodePrepareResourceRequest")(
            resource_uid=uid
        )
        reply = await self._stub.call("NodePrepareResource", request, timeout=CALL_TIMEOUT_SECONDS)
        return tuple(reply.cdi_device)


class ClassicConformanceClaims(ConformanceClaims):
    """Makes classic claims, which somebody else allocates."""

    def __init__(self, client: Client, settings: ConformanceClaimSettings, class_name: str) -> None:
        super().__init__(client, settings)
        self._class_name = class_name

    async def create_allocated_claim(self) -> ConformanceClaimRef:
        """A claim that its driver has allocated, and a pod that may use it."""
        if not self._class_name:
            raise CheckSkippedError("nobody said of which ResourceClass claims should be: give --class NAME")
        spec = {"resourceClassName": self._class_name, "allocationMode": "Immediate"}
        made = await self._client.create(
            {
                "apiVersion": "cdi.k8s.io/v1alpha1",
                "kind": "ResourceClaim",
                "metadata": {"name": self.generate_name("claim"), "namespace": NAMESPACE},
                "spec": spec
                | ({"parameters": self._settings.parameters} if self._settings.parameters else {}),
            }
        )
        ref = ConformanceClaimRef(NAMESPACE, made.metadata.name, get_uid(made))
        self._created.append(ref)
        for _ in range(int(CALL_TIMEOUT_SECONDS / _POLL_SECONDS)):
            if (
                await self._client.get(ClassicResourceClaim, ref.name, ref.namespace)
            ).status.phase == ALLOCATED:
                pod = await self.create_pod(ref)
                owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
                await self._patch_status(ref, {"reservedFor": [owner]})
                return ref
            await asyncio.sleep(_POLL_SECONDS)
        raise CheckSkippedError(
            f"a claim of class `{self._class_name}` was not allocated in "
            f"{CALL_TIMEOUT_SECONDS:g} seconds; the driver's "
            "controller must run, and have something left"
        )

    async def deallocate(self, ref: ConformanceClaimRef) -> None:
        await self._patch_status(ref, {"reservedFor": None})

    async def delete_claim(self, ref: ConformanceClaimRef) -> None:
        """Delete a claim; its controller lets go of it."""
        with contextlib.suppress(ConflictError, NotFoundError):
            await self._client.delete(
                ClassicResourceClaim, ref.name, ref.namespace, DeleteOptions(uid=ref.uid)
            )
            for _ in range(int(CALL_TIMEOUT_SECONDS / _POLL_SECONDS)):
                await self._client.get(ClassicResourceClaim, ref.name, ref.namespace)
                await asyncio.sleep(_POLL_SECONDS)

    async def _patch_status(self, ref: ConformanceClaimRef, status: dict[str, Any]) -> None:
        change = MergePatch({"metadata": {"uid": ref.uid}, "status": status})
        await self._client.patch(ClassicResourceClaim, ref.name, change, ref.namespace, subresource="status")


@dataclass
class ClassicCheckContext:
    """The place where checks of classic drivers are done."""

    driver_client: ConformanceClassicClient
    claims: ClassicConformanceClaims
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    cdi_devices_before: frozenset[str] = frozenset()
    """What was described before the claim was prepared, and stays."""

    async def prepare_new_claim(self) -> tuple[ConformanceClaimRef, tuple[str, ...]]:
        self.cdi_devices_before = (
            frozenset() if self.cdi_dir is None else cdi_specs.list_described_devices(self.cdi_dir)
        )
        ref = await self.claims.create_allocated_claim()
        return ref, await self.prepare_claim(ref)

    async def prepare_claim(self, ref: ConformanceClaimRef) -> tuple[str, ...]:
        names = await self.driver_client.prepare(ref.uid)
        cdi_specs.check_device_names(names)
        if self.cdi_dir is not None:
            cdi_specs.check_all_described(self.cdi_dir, names)
        return names

    async def unprepare_and_check(self, ref: ConformanceClaimRef, names: Sequence[str]) -> None:
        await self.driver_client.unprepare(ref.uid, names)
        if self.cdi_dir is not None:
            cdi_specs.check_none_described(self.cdi_dir, frozenset(names) - self.cdi_devices_before)

    async def restart_driver(self) -> None:
        if self.restart is None:
            raise CheckSkippedError(
                "nobody said how to restart the driver: give --restart COMMAND or --supervised"
            )
        await self.restart()
        await self.driver_client.wait_until_serving()

    async def check_same_response(self, ref: ConformanceClaimRef, names: Sequence[str]) -> None:
        again = await self.prepare_claim(ref)
        if again != names:
            raise NotConformantError(f"the answer is {', '.join(again)} now, it was {', '.join(names)}")


async def check_prepare(context: ClassicCheckContext) -> None:
    """A claim that its controller allocated is prepared, and given back."""
    ref, names = await context.prepare_new_claim()
    await context.unprepare_and_check(ref, names)


async def check_idempotent(context: ClassicCheckContext) -> None:
    """The same call again has the same answer."""
    ref, names = await context.prepare_new_claim()
    await context.check_same_response(ref, names)


async def check_concurrent(context: ClassicCheckContext) -> None:
    """Calls that come at once have one answer, and leave nothing when the claim is given back."""
    ref = await context.claims.create_allocated_claim()
    answers = await asyncio.gather(*(context.prepare_claim(ref) for _ in range(_CONCURRENT_CALLS)))
    if len(set(answers)) > 1:
        raise NotConformantError(
            f"{_CONCURRENT_CALLS} calls at once have {len(set(answers))} different answers"
        )
    await context.unprepare_and_check(ref, answers[0])


async def check_prepare_unknown(context: ClassicCheckContext) -> None:
    """A claim that does not exist is refused, and the driver goes on."""
    await context.driver_client.expect_refusal(str(uuid.uuid4()), "a claim that does not exist")
    await context.driver_client.wait_until_serving()


async def check_unprepare_twice(context: ClassicCheckContext) -> None:
    """A claim that was given back, or was never there, is given back without complaint."""
    ref, names = await context.prepare_new_claim()
    await context.unprepare_and_check(ref, names)
    await context.unprepare_and_check(ref, names)
    await context.driver_client.unprepare(str(uuid.uuid4()))


async def check_late_prepare(context: ClassicCheckContext) -> None:
    """A call to prepare that arrives after the claim was given back and deleted is refused."""
    ref, names = await context.prepare_new_claim()
    await context.unprepare_and_check(ref, names)
    await context.claims.delete_claims()
    await context.driver_client.expect_refusal(ref.uid, "a claim that was given back and deleted")


async def check_restart(context: ClassicCheckContext) -> None:
    """After a restart the same call has the same answer, and the claim can be given back."""
    ref, names = await context.prepare_new_claim()
    await context.restart_driver()
    await context.check_same_response(ref, names)
    await context.unprepare_and_check(ref, names)


async def check_reboot(context: ClassicCheckContext) -> None:
    """When CDI files are gone after a restart, prepare writes them anew."""
    if context.cdi_dir is None:
        raise CheckSkippedError("nobody said where the driver writes CDI files: give --cdi-dir")
    ref, names = await context.prepare_new_claim()
    for path in cdi_specs.check_all_described(context.cdi_dir, names):
        path.unlink()
    await context.restart_driver()
    await context.check_same_response(ref, names)
    await context.unprepare_and_check(ref, names)
