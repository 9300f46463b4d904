"""Checks of drivers for classic claims (KEP-3063), which calls name by uid, one per call.

Theory of operation: only the driver's own controller can allocate such a claim, so it must run, and the suite
needs the name of a class of the driver. The suite creates a claim with immediate allocation, reserves it for
a pod, and then calls the driver as an agent would. A failure of a call is a gRPC status code.
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
from dray.driver.conformance import cdi_specs
from dray.driver.conformance.check_context import CANNOT_RESTART
from dray.driver.conformance.claims import NAMESPACE, ConformanceClaims, ConformanceClaimSettings
from dray.driver.conformance.driver_client import CALL_TIMEOUT_SECONDS, ConformanceClaimRef, format_rpc_error
from dray.driver.conformance.results import CheckSkippedError, NotConformantError
from dray.wire import grpc_services

_POLL_SECONDS: Final = 0.1
_CONCURRENT_CALLS: Final = 8


class ConformanceClassicClient:
    """Calls a classic driver on its node."""

    def __init__(self, channel: Any) -> None:
        self._stub = grpc_services.GrpcStub(channel, grpc_services.CLASSIC_V1ALPHA1)

    async def prepare(self, uid: str) -> tuple[str, ...]:
        """Prepare a claim and return its CDI devices; raises `NotConformantError` when the driver refuses."""
        try:
            return await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(
                f"NodePrepareResource: {format_rpc_error(refused)}", "the names of CDI devices"
            ) from None

    async def expect_refusal(self, uid: str, what: str) -> None:
        """Raise `NotConformantError` unless the driver refuses to prepare."""
        try:
            names = await self._prepare(uid)
        except grpc.aio.AioRpcError as refused:
            if refused.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NotConformantError(
                    f"the driver does not answer any more: {format_rpc_error(refused)}", "a refusal"
                ) from None
            return
        raise NotConformantError(
            f"{what} was prepared: {', '.join(names) or 'without CDI devices'}", "a refusal"
        )

    async def unprepare(self, uid: str, names: Sequence[str] = ()) -> None:
        """Unprepare a claim; raises `NotConformantError` when the driver refuses."""
        request = grpc_services.CLASSIC_V1ALPHA1.get_message_class("NodeUnprepareResourceRequest")(
            resource_uid=uid, cdi_device=names
        )
        try:
            await self._stub.call("NodeUnprepareResource", request, timeout=CALL_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as refused:
            raise NotConformantError(
                f"NodeUnprepareResource: {format_rpc_error(refused)}", "an answer without an error"
            ) from None

    async def wait_until_serving(self) -> None:
        """Wait until the driver answers after a restart."""
        deadline = asyncio.get_running_loop().time() + CALL_TIMEOUT_SECONDS
        while True:
            try:
                await self.unprepare(str(uuid.uuid4()))
                return
            except NotConformantError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _prepare(self, uid: str) -> tuple[str, ...]:
        request = grpc_services.CLASSIC_V1ALPHA1.get_message_class("NodePrepareResourceRequest")(
            resource_uid=uid
        )
        reply = await self._stub.call("NodePrepareResource", request, timeout=CALL_TIMEOUT_SECONDS)
        return tuple(reply.cdi_device)


class ClassicConformanceClaims(ConformanceClaims):
    """Creates classic claims, which the driver's controller allocates."""

    kind = ClassicResourceClaim

    def __init__(self, client: Client, settings: ConformanceClaimSettings, class_name: str) -> None:
        super().__init__(client, settings)
        self._class_name = class_name

    async def create_allocated_claim(self) -> ConformanceClaimRef:
        """Create a claim, wait until the driver has allocated it, and reserve it for a new pod."""
        if not self._class_name:
            raise CheckSkippedError("the ResourceClass for claims is not known: give --class NAME")
        spec = {"resourceClassName": self._class_name, "allocationMode": "Immediate"}
        created = await self._client.create(
            {
                "apiVersion": "cdi.k8s.io/v1alpha1",
                "kind": "ResourceClaim",
                "metadata": {"name": self.generate_name("claim"), "namespace": NAMESPACE},
                "spec": spec
                | ({"parameters": self._settings.parameters} if self._settings.parameters else {}),
            }
        )
        ref = ConformanceClaimRef(NAMESPACE, created.metadata.name, get_uid(created))
        self._created.append(ref)
        for _ in range(int(CALL_TIMEOUT_SECONDS / _POLL_SECONDS)):
            claim = await self._client.get(ClassicResourceClaim, ref.name, ref.namespace)
            if claim.status.phase == ALLOCATED:
                pod = await self.create_pod(ref)
                owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
                await self._write(ref, {"status": {"reservedFor": [owner]}}, "status")
                return ref
            await asyncio.sleep(_POLL_SECONDS)
        raise CheckSkippedError(
            f"a claim of class `{self._class_name}` was not allocated in {CALL_TIMEOUT_SECONDS:g} seconds; "
            "the driver's controller must run, and have something left"
        )

    async def deallocate(self, ref: ConformanceClaimRef) -> None:
        await self._write(ref, {"status": {"reservedFor": None}}, "status")

    async def delete_claim(self, ref: ConformanceClaimRef) -> None:
        """Delete a claim, and wait until the controller has removed its finalizer."""
        with contextlib.suppress(ConflictError, NotFoundError):
            await self._client.delete(
                ClassicResourceClaim, ref.name, ref.namespace, DeleteOptions(uid=ref.uid)
            )
            for _ in range(int(CALL_TIMEOUT_SECONDS / _POLL_SECONDS)):
                await self._client.get(ClassicResourceClaim, ref.name, ref.namespace)
                await asyncio.sleep(_POLL_SECONDS)


@dataclass
class ClassicCheckContext:
    """Everything that a check of a classic driver uses."""

    driver_client: ConformanceClassicClient
    claims: ClassicConformanceClaims
    cdi_dir: Path | None = None
    restart: Callable[[], Awaitable[None]] | None = None
    described_before: cdi_specs.DescribedDevices = cdi_specs.NOTHING_DESCRIBED
    """The CDI devices that were described before the claim was prepared, and stay."""

    async def prepare_new_claim(self) -> tuple[ConformanceClaimRef, tuple[str, ...]]:
        self.described_before = cdi_specs.list_described_devices(self.cdi_dir)
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
            cdi_specs.check_none_described(self.cdi_dir, self.select_own(names))

    def select_own(self, names: Sequence[str]) -> frozenset[str]:
        """Return the CDI devices that the driver described only for the claim."""
        return frozenset(names) - self.described_before.names

    async def restart_driver(self) -> None:
        if self.restart is None:
            raise CheckSkippedError(CANNOT_RESTART)
        await self.restart()
        await self.driver_client.wait_until_serving()

    async def check_same_response(self, ref: ConformanceClaimRef, names: Sequence[str]) -> None:
        again = await self.prepare_claim(ref)
        if again != names:
            raise NotConformantError(
                f"the answer is now {', '.join(again)}", f"the same as before: {', '.join(names)}"
            )


async def check_prepare(context: ClassicCheckContext) -> None:
    """A claim that its controller allocated is prepared, and given back."""
    ref, names = await context.prepare_new_claim()
    await context.unprepare_and_check(ref, names)


async def check_idempotent(context: ClassicCheckContext) -> None:
    """The same call again has the same answer."""
    ref, names = await context.prepare_new_claim()
    await context.check_same_response(ref, names)


async def check_concurrent(context: ClassicCheckContext) -> None:
    """Concurrent calls have one answer, and leave nothing when the claim is given back."""
    ref = await context.claims.create_allocated_claim()
    responses = await asyncio.gather(*(context.prepare_claim(ref) for _ in range(_CONCURRENT_CALLS)))
    if len(set(responses)) > 1:
        raise NotConformantError(
            f"{_CONCURRENT_CALLS} calls at once have {len(set(responses))} different answers",
            "one answer for all of them",
        )
    await context.unprepare_and_check(ref, responses[0])


async def check_prepare_unknown(context: ClassicCheckContext) -> None:
    """A claim that does not exist is refused, and the driver goes on."""
    await context.driver_client.expect_refusal(str(uuid.uuid4()), "a claim that does not exist")
    await context.driver_client.wait_until_serving()


async def check_unprepare_twice(context: ClassicCheckContext) -> None:
    """A claim that was given back, or never existed, is given back without an error."""
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
    """When CDI files are gone after a restart, prepare writes them again."""
    if context.cdi_dir is None:
        raise CheckSkippedError("the directory of CDI files is not known: give --cdi-dir")
    if context.restart is None:
        raise CheckSkippedError(CANNOT_RESTART)
    ref, names = await context.prepare_new_claim()
    own = context.select_own(names)
    if not own:
        raise CheckSkippedError("the driver writes no CDI devices for a claim")
    for path in cdi_specs.find_own_files(context.cdi_dir, context.described_before, own):
        path.unlink()
    await context.restart_driver()
    await context.check_same_response(ref, names)
    await context.unprepare_and_check(ref, names)
