"""The claims of the suite: made, given devices and a pod, changed, freed and removed through the API.

Theory of operation: the suite does what a scheduler does, by writing the status of claims of its own in a
namespace of its own. A reservation needs a pod that exists, or a controller would take it back; that pod
names a scheduler that nobody runs, so it never gets a node. Whoever runs the suite needs to create
namespaces, pods and claims, and to write `resourceclaims/status` and `resourceclaims/binding`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.api.resource import ResourceClaim
from dray.client.client import Client, DeleteOptions
from dray.client.errors import AlreadyExistsError, ApiError, ConflictError, ForbiddenError, NotFoundError
from dray.client.object_refs import get_kind, get_uid
from dray.client.patches import MergePatch
from dray.driver.conformance.driver_client import ConformanceClaimRef
from dray.driver.conformance.free_devices import FreeDevice
from dray.values.node_selectors import build_node_name_selector

NAMESPACE: Final = "dray-conformance"
REQUEST: Final = "device"
_UNUSED_SCHEDULER: Final = "nobody"
_NAMESPACES, _PODS = get_kind("Namespace"), get_kind("Pod")
_ATTEMPTS: Final = 10
_PATIENT, _PAUSE = 40, 0.25
"""How often and after how many seconds something is tried again that others have to finish first."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConformanceClaimSettings:
    """What all claims of a run have in common."""

    driver: str
    parameters: Document | None = None


class ConformanceClaims:
    """Makes claims and takes them away again."""

    def __init__(self, client: Client, settings: ConformanceClaimSettings) -> None:
        self._client = client
        self._settings = settings
        self._sequence = itertools.count(1)
        self._run_id = uuid.uuid4().hex[:6]
        self._pods: list[str] = []
        self._created: list[ConformanceClaimRef] = []
        self._owns_namespace = False

    def generate_name(self, what: str) -> str:
        """A name that no other object of any run has."""
        return f"{what}-{self._run_id}-{next(self._sequence)}"

    async def create_namespace(self) -> None:
        """Make sure of the namespace."""
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for _ in range(_PATIENT):
            try:
                await self._client.create(document)
                self._owns_namespace = True
                return
            except AlreadyExistsError:
                if not await self._is_namespace_terminating():
                    return
            await asyncio.sleep(_PAUSE)  # an earlier run's, which is still being emptied

    async def _is_namespace_terminating(self) -> bool:
        try:
            found = await self._client.get(_NAMESPACES, NAMESPACE)
        except NotFoundError:
            return True
        return "deletionTimestamp" in found["metadata"]

    async def clean_up(self) -> None:
        """Remove everything that was made."""
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
        """The claims of the check that runs."""
        return tuple(self._created)

    async def delete_claims(self) -> None:
        """Free and delete the claims of a check."""
        for ref in self._created:
            with contextlib.suppress(
                NotFoundError, ConflictError
            ):  # gone, or another one has its name by now
                await self.deallocate(ref)
                await self.delete_claim(ref)
        self._created.clear()

    async def create_claim(self, *devices: FreeDevice) -> ConformanceClaimRef:
        """A claim that has these devices, and a pod that may use them."""
        ref = await self.create_unallocated_claim(len(devices))
        await self.allocate(ref, devices)
        return ref

    async def create_unallocated_claim(self, count: int = 1, name: str = "") -> ConformanceClaimRef:
        """A claim that has nothing yet."""
        name = name or self.generate_name("claim")
        requests = [
            {"name": f"{REQUEST}-{i}", "exactly": {"deviceClassName": NAMESPACE}} for i in range(count)
        ]
        made = await self._client.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"devices": {"requests": requests}},
            }
        )
        ref = ConformanceClaimRef(NAMESPACE, name, get_uid(made))
        self._created.append(ref)
        return ref

    async def allocate(self, ref: ConformanceClaimRef, free_devices: Sequence[FreeDevice]) -> None:
        """Give a claim devices and a pod, as a scheduler would."""
        results = [self._build_result(i, spare) for i, spare in enumerate(free_devices)]
        devices: Document = {"results": results}
        if self._settings.parameters is not None:
            opaque = {"driver": self._settings.driver, "parameters": self._settings.parameters}
            devices["config"] = [{"source": "FromClaim", "opaque": opaque}]
        allocation: Document = {"devices": devices}
        node = next((spare.node for spare in free_devices if spare.node), "")
        if node:
            allocation["nodeSelector"] = msgspec.to_builtins(build_node_name_selector(node))
        pod = await self.create_pod(ref)
        await self._patch_status(ref, {"allocation": allocation, "reservedFor": [pod]})

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
        """A pod that uses a claim, as an entry of its reservations."""
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
        made = await self._create_pod_with_retry(document)
        self._pods.append(name)
        return {"resource": "pods", "name": name, "uid": get_uid(made)}

    async def _create_pod_with_retry(self, document: Document) -> Any:
        """Create a pod; in a namespace that is new its account may not be there yet."""
        for _ in range(_PATIENT):
            with contextlib.suppress(ForbiddenError):
                return await self._client.create(document)
            await asyncio.sleep(_PAUSE)
        return await self._client.create(document)

    async def replace_pod(self, ref: ConformanceClaimRef) -> None:
        """Let another pod use a claim, and those that did no longer."""
        await self._patch_status(ref, {"reservedFor": [await self.create_pod(ref)]})

    async def deallocate(self, ref: ConformanceClaimRef) -> None:
        """Take the devices and the pods from a claim, without a word to the driver."""
        await self._patch_status(ref, {"allocation": None, "reservedFor": None, "devices": None})

    async def delete_claim(self, ref: ConformanceClaimRef) -> None:
        """Delete a claim, whatever wants to keep it."""
        how = DeleteOptions(uid=ref.uid)
        with contextlib.suppress(ConflictError, NotFoundError):
            left = await self._client.delete(ResourceClaim, ref.name, ref.namespace, how)
            if left is not None and left.metadata.finalizers:
                released = MergePatch({"metadata": {"finalizers": None, "uid": ref.uid}})
                await self._client.patch(ResourceClaim, ref.name, released, ref.namespace)

    async def _patch_status(self, ref: ConformanceClaimRef, status: Document) -> None:
        """Write parts of the status; a driver or a controller may write beside us, so it is tried again."""
        for attempt in range(_ATTEMPTS):
            change = MergePatch({"metadata": {"uid": ref.uid}, "status": status})
            try:
                await self._client.patch(ResourceClaim, ref.name, change, ref.namespace, subresource="status")
                return
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
