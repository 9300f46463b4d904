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
from dray.client.client import Client, Deletion
from dray.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from dray.client.object_refs import kind_called, uid_of
from dray.client.patches import MergePatch
from dray.driver.conformance.driver_client import Ref
from dray.driver.conformance.free_devices import Spare
from dray.values.node_selectors import for_node

NAMESPACE: Final = "dray-conformance"
REQUEST: Final = "device"
_NOBODY: Final = "nobody"
_NAMESPACES, _PODS = kind_called("Namespace"), kind_called("Pod")
_ATTEMPTS: Final = 10
_PATIENT, _PAUSE = 40, 0.25
"""How often and after how many seconds something is tried again that others have to finish first."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """What all claims of a run have in common."""

    driver: str
    parameters: Document | None = None


class Ward:
    """Makes claims and takes them away again."""

    def __init__(self, client: Client, terms: Terms) -> None:
        self._client = client
        self._terms = terms
        self._numbers = itertools.count(1)
        self._run = uuid.uuid4().hex[:6]
        self._pods: list[str] = []
        self._made: list[Ref] = []
        self._namespace_is_ours = False

    def fresh(self, what: str) -> str:
        """A name that no other object of any run has."""
        return f"{what}-{self._run}-{next(self._numbers)}"

    async def open(self) -> None:
        """Make sure of the namespace."""
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        for _ in range(_PATIENT):
            try:
                await self._client.create(document)
                self._namespace_is_ours = True
                return
            except AlreadyExists:
                if not await self._is_going():
                    return
            await asyncio.sleep(_PAUSE)  # an earlier run's, which is still being emptied

    async def _is_going(self) -> bool:
        try:
            found = await self._client.get(_NAMESPACES, NAMESPACE)
        except NotFound:
            return True
        return "deletionTimestamp" in found["metadata"]

    async def close(self) -> None:
        """Remove everything that was made."""
        await self.clear()
        for name in self._pods:
            with contextlib.suppress(NotFound):
                await self._client.delete(_PODS, name, NAMESPACE, Deletion(grace=0))
        self._pods.clear()
        if self._namespace_is_ours:
            with contextlib.suppress(ApiError):
                await self._client.delete(_NAMESPACES, NAMESPACE)

    @property
    def made(self) -> tuple[Ref, ...]:
        """The claims of the check that runs."""
        return tuple(self._made)

    async def clear(self) -> None:
        """Free and delete the claims of a check."""
        for ref in self._made:
            with contextlib.suppress(NotFound, Conflict):  # gone, or another one has its name by now
                await self.free(ref)
                await self.remove(ref)
        self._made.clear()

    async def claim(self, *spares: Spare) -> Ref:
        """A claim that has these devices, and a pod that may use them."""
        ref = await self.bare(len(spares))
        await self.allocate(ref, spares)
        return ref

    async def bare(self, count: int = 1, name: str = "") -> Ref:
        """A claim that has nothing yet."""
        name = name or self.fresh("claim")
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
        ref = Ref(NAMESPACE, name, uid_of(made))
        self._made.append(ref)
        return ref

    async def allocate(self, ref: Ref, spares: Sequence[Spare]) -> None:
        """Give a claim devices and a pod, as a scheduler would."""
        results = [self._result(i, spare) for i, spare in enumerate(spares)]
        devices: Document = {"results": results}
        if self._terms.parameters is not None:
            opaque = {"driver": self._terms.driver, "parameters": self._terms.parameters}
            devices["config"] = [{"source": "FromClaim", "opaque": opaque}]
        allocation: Document = {"devices": devices}
        node = next((spare.node for spare in spares if spare.node), "")
        if node:
            allocation["nodeSelector"] = msgspec.to_builtins(for_node(node))
        pod = await self.pod(ref)
        await self._status(ref, {"allocation": allocation, "reservedFor": [pod]})

    def _result(self, number: int, spare: Spare) -> Document:
        result: Document = {
            "request": f"{REQUEST}-{number}",
            "driver": self._terms.driver,
            "pool": spare.pool,
            "device": spare.name,
        }
        if spare.shared:
            result["shareID"] = str(uuid.uuid4())
            result["consumedCapacity"] = {name: str(amount) for name, amount in spare.least}
        return result

    async def pod(self, ref: Ref) -> Document:
        """A pod that uses a claim, as an entry of its reservations."""
        name = self.fresh("pod")
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulerName": _NOBODY,
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "c"}]}}],
                "resourceClaims": [{"name": "c", "resourceClaimName": ref.name}],
            },
        }
        made = await self._new_pod(document)
        self._pods.append(name)
        return {"resource": "pods", "name": name, "uid": uid_of(made)}

    async def _new_pod(self, document: Document) -> Any:
        """Create a pod; in a namespace that is new its account may not be there yet."""
        for _ in range(_PATIENT):
            with contextlib.suppress(Forbidden):
                return await self._client.create(document)
            await asyncio.sleep(_PAUSE)
        return await self._client.create(document)

    async def hand_over(self, ref: Ref) -> None:
        """Let another pod use a claim, and those that did no longer."""
        await self._status(ref, {"reservedFor": [await self.pod(ref)]})

    async def free(self, ref: Ref) -> None:
        """Take the devices and the pods from a claim, without a word to the driver."""
        await self._status(ref, {"allocation": None, "reservedFor": None, "devices": None})

    async def remove(self, ref: Ref) -> None:
        """Delete a claim, whatever wants to keep it."""
        how = Deletion(uid=ref.uid)
        with contextlib.suppress(Conflict, NotFound):
            left = await self._client.delete(ResourceClaim, ref.name, ref.namespace, how)
            if left is not None and left.metadata.finalizers:
                released = MergePatch({"metadata": {"finalizers": None, "uid": ref.uid}})
                await self._client.patch(ResourceClaim, ref.name, released, ref.namespace)

    async def _status(self, ref: Ref, status: Document) -> None:
        """Write parts of the status; a driver or a controller may write beside us, so it is tried again."""
        for attempt in range(_ATTEMPTS):
            change = MergePatch({"metadata": {"uid": ref.uid}, "status": status})
            try:
                await self._client.patch(ResourceClaim, ref.name, change, ref.namespace, subresource="status")
                return
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
