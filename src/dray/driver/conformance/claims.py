"""Claims of the conformance suite: created, allocated, reserved, deallocated and deleted through the API.

Theory of operation: the suite does the work of a scheduler, by the same writes: the finalizer through the
claim itself, then allocation, its time and the reservation through `resourceclaims/status`. The server
gives every claim its uid. A write first reads the claim and names the version it has read, because a server
refuses a patch that names a foreign uid as invalid instead of as a conflict. A reservation needs a pod that
exists, or a controller would remove it; that pod names a scheduler that does not exist, so it never gets a
node. The user of the suite needs the rights to create namespaces, pods and claims, and to write
`resourceclaims/status` and `resourceclaims/binding`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from dray.api.resource import ResourceClaim
from dray.claims.claim_names import FINALIZER
from dray.client.client import Client, DeleteOptions
from dray.client.errors import AlreadyExistsError, ApiError, ConflictError, ForbiddenError, NotFoundError
from dray.client.object_refs import get_kind, get_resource_version, get_uid
from dray.client.patches import MergePatch, add_preconditions
from dray.clock import SystemClock, format_timestamp
from dray.driver.conformance.driver_client import ConformanceClaimRef
from dray.driver.conformance.free_devices import FreeDevice
from dray.errors import InputError
from dray.values.node_selectors import build_node_name_selector

NAMESPACE: Final = "dray-conformance"
REQUEST: Final = "device"
_UNUSED_SCHEDULER: Final = "nobody"
_NAMESPACES, _PODS = get_kind("Namespace"), get_kind("Pod")
_CONFLICT_ATTEMPTS: Final = 10
_WAIT_ATTEMPTS, _WAIT_SECONDS = 240, 0.25
"""How often, and after how many seconds, a write is retried that waits for a controller."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConformanceClaimSettings:
    """Settings of all claims of a run."""

    driver: str
    parameters: Document | None = None


class ConformanceClaims:
    """Creates the claims and pods of a run, and deletes them again."""

    kind: ClassVar[type[Any]] = ResourceClaim

    def __init__(self, client: Client, settings: ConformanceClaimSettings) -> None:
        self._client = client
        self._settings = settings
        self._sequence = itertools.count(1)
        self._run_id = uuid.uuid4().hex[:6]
        self._pods: list[str] = []
        self._created: list[ConformanceClaimRef] = []
        self._owns_namespace = False

    def generate_name(self, what: str) -> str:
        """Return a name that no other object of any run has."""
        return f"{what}-{self._run_id}-{next(self._sequence)}"

    async def create_namespace(self) -> None:
        """Create the namespace unless it exists."""
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for _ in range(_WAIT_ATTEMPTS):
            try:
                await self._client.create(document)
                self._owns_namespace = True
                return
            except AlreadyExistsError:
                if not await self._is_namespace_terminating():
                    return
            await asyncio.sleep(_WAIT_SECONDS)  # the namespace of an earlier run is still terminating
        raise InputError(
            f"namespace `{NAMESPACE}` of an earlier run is still being deleted after "
            f"{_WAIT_ATTEMPTS * _WAIT_SECONDS:g} seconds; see its conditions with `kubectl get namespace "
            f"{NAMESPACE} -o yaml`, and whether kube-controller-manager runs"
        )

    async def _is_namespace_terminating(self) -> bool:
        try:
            found = await self._client.get(_NAMESPACES, NAMESPACE)
        except NotFoundError:
            return True
        return "deletionTimestamp" in found["metadata"]

    async def clean_up(self) -> None:
        """Delete everything that was created."""
        await self.delete_claims()
        for name in self._pods:
            with contextlib.suppress(NotFoundError):
                await self._client.delete(_PODS, name, NAMESPACE, DeleteOptions(grace_seconds=0))
        self._pods.clear()
        if self._owns_namespace:
            with contextlib.suppress(ApiError):
                await self._client.delete(_NAMESPACES, NAMESPACE)

    @property
    def created(self) -> tuple[ConformanceClaimRef, ...]:
        """The claims of the current check."""
        return tuple(self._created)

    async def delete_claims(self) -> None:
        """Deallocate and delete the claims of a check."""
        for ref in self._created:
            # A claim may be gone, or another one may have its name by now.
            with contextlib.suppress(NotFoundError):
                await self.deallocate(ref)
                await self.delete_claim(ref)
        self._created.clear()

    async def create_claim(self, *devices: FreeDevice) -> ConformanceClaimRef:
        """Create a claim with these devices, reserved for a new pod."""
        ref = await self.create_unallocated_claim(len(devices))
        await self.allocate(ref, devices)
        return ref

    async def create_unallocated_claim(self, count: int = 1, name: str = "") -> ConformanceClaimRef:
        """Create a claim without an allocation."""
        name = name or self.generate_name("claim")
        requests = [
            {"name": f"{REQUEST}-{i}", "exactly": {"deviceClassName": NAMESPACE}} for i in range(count)
        ]
        created = await self._client.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": requests}},
            }
        )
        ref = ConformanceClaimRef(NAMESPACE, name, get_uid(created))
        self._created.append(ref)
        return ref

    async def allocate(self, ref: ConformanceClaimRef, free_devices: Sequence[FreeDevice]) -> None:
        """Allocate devices to a claim and reserve it for a new pod, as a scheduler would."""
        results = [self._build_result(i, each) for i, each in enumerate(free_devices)]
        devices: Document = {"results": results}
        if self._settings.parameters is not None:
            opaque = {"driver": self._settings.driver, "parameters": self._settings.parameters}
            devices["config"] = [{"source": "FromClaim", "opaque": opaque}]
        allocation: Document = {"devices": devices}
        node = next((each.node for each in free_devices if each.node), "")
        if node:
            allocation["nodeSelector"] = msgspec.to_builtins(build_node_name_selector(node))
        allocation["allocationTimestamp"] = format_timestamp(SystemClock().now())
        pod = await self.create_pod(ref)
        await self._write(ref, {"metadata": {"finalizers": [FINALIZER]}})
        await self._write(ref, {"status": {"allocation": allocation, "reservedFor": [pod]}}, "status")

    def _build_result(self, number: int, free_device: FreeDevice) -> Document:
        result: Document = {
            "request": f"{REQUEST}-{number}",
            "driver": self._settings.driver,
            "pool": free_device.pool,
            "device": free_device.name,
        }
        if free_device.shared:
            result["shareID"] = str(uuid.uuid4())
            result["consumedCapacity"] = {name: str(amount) for name, amount in free_device.min_share}
        return result

    async def create_pod(self, ref: ConformanceClaimRef) -> Document:
        """Create a pod that uses a claim, and return its entry for `reservedFor`."""
        name = self.generate_name("pod")
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulerName": _UNUSED_SCHEDULER,
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "c"}]}}],
                "resourceClaims": [{"name": "c", "resourceClaimName": ref.name}],
            },
        }
        created = await self._create_pod_with_retry(document)
        self._pods.append(name)
        return {"resource": "pods", "name": name, "uid": get_uid(created)}

    async def _create_pod_with_retry(self, document: Document) -> Any:
        """Create a pod; in a new namespace the service account may not exist yet."""
        for _ in range(_WAIT_ATTEMPTS):
            with contextlib.suppress(ForbiddenError):
                return await self._client.create(document)
            await asyncio.sleep(_WAIT_SECONDS)
        return await self._client.create(document)

    async def replace_pod(self, ref: ConformanceClaimRef) -> None:
        """Reserve a claim for another pod instead of the present ones."""
        await self._write(ref, {"status": {"reservedFor": [await self.create_pod(ref)]}}, "status")

    async def deallocate(self, ref: ConformanceClaimRef) -> None:
        """Remove the allocation and the reservations of a claim, without calling the driver."""
        nothing = {"allocation": None, "reservedFor": None, "devices": None}
        await self._write(ref, {"status": nothing}, "status")

    async def delete_claim(self, ref: ConformanceClaimRef) -> None:
        """Delete a claim, despite finalizers."""
        with contextlib.suppress(ConflictError, NotFoundError):
            await self._client.delete(ResourceClaim, ref.name, ref.namespace, DeleteOptions(uid=ref.uid))
            await self._write(ref, {"metadata": {"finalizers": None}})

    async def _write(self, ref: ConformanceClaimRef, change: Document, subresource: str = "") -> None:
        """Patch the claim of this uid, or raise `NotFoundError`.

        A driver or a controller may write it too, so conflicts are retried.
        """
        for attempt in range(_CONFLICT_ATTEMPTS):
            stored = await self._client.get(self.kind, ref.name, ref.namespace)
            if get_uid(stored) != ref.uid:
                why = f"`{ref.namespace}/{ref.name}` is another claim by now"
                raise NotFoundError(404, {"reason": "NotFound", "message": why})
            patch = add_preconditions(MergePatch(change), get_resource_version(stored))
            try:
                await self._client.patch(self.kind, ref.name, patch, ref.namespace, subresource=subresource)
                return
            except ConflictError:
                if attempt == _CONFLICT_ATTEMPTS - 1:
                    raise
