"""What users and drivers do in a schedule: create, delete, taint, publish, and fence lost nodes.

Theory of operation: a step becomes one task outside of all processes, whose requests go over the same network
as all others. A request that fails is not repeated: the user comes back later, or does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from dray.api.core import Pod
from dray.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client.client import Client, DeleteOptions
from dray.client.errors import NotFoundError
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from dray.cluster.live.fencing import NodeFencer
from dray.server.http.requests import MASTERS
from tests.faults.simulated import objects
from tests.faults.simulated.schedule import ScheduledStep
from tests.simulated.cluster import SimulatedCluster

_REQUESTED: Final = ("gpu", "gpu", "gpu", "two", "nic", "part", "any")
_SHARED_CLAIMS: Final = 2
_EFFECTS: Final = ("NoExecute", "NoSchedule")


class Workload:
    """Carries out the steps of users and drivers."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._client = cluster.build_client("user", "admin", MASTERS)
        self._pods: list[tuple[str, str]] = []
        self._generation = 1
        self._actions: dict[str, Callable[[ScheduledStep], Coroutine[Any, Any, None]]] = {
            "create pod": self._create_pod,
            "create claim": self._create_claim,
            "fill quota": self._fill_quota,
            "delete pod": self._delete_pod,
            "delete pod by force": self._delete_pod_by_force,
            "recreate pod": self._recreate_pod,
            "delete claim": self._delete_claim,
            "taint device": self._taint_device,
            "taint by rule": self._taint_by_rule,
            "delete taint rule": self._delete_taint_rule,
            "withdraw slice": self._withdraw_slice,
            "publish slice": self._publish_slice,
            "delete class": self._delete_class,
            "create class": self._create_class,
            "write device status": self._write_device_status,
            "lose and fence node": self._lose_and_fence_node,
        }

    @property
    def client(self) -> Client:
        """The client of the user."""
        return self._client

    def begin(self, step: ScheduledStep) -> None:
        """Begin a step; it goes on by itself."""
        loop = self._cluster.loop
        loop.spawn(loop.outside, self._attempt(self._actions[step.name](step)))

    async def _attempt(self, work: Coroutine[Any, Any, None]) -> None:
        with suppress(*CALL_ERRORS):  # the user sees an error and leaves it at that
            await work

    def _choose_pool(self, number: int) -> str:
        pools = [*self._cluster.machines, objects.FABRIC]
        return pools[number % len(pools)]

    def _choose_node(self, number: int) -> str:
        return list(self._cluster.machines)[number % len(self._cluster.machines)]

    # --- pods and claims ---

    async def _create_pod(self, step: ScheduledStep) -> None:
        number, kind = divmod(step.number, 100)
        namespace, claim = "default", {"resourceClaimTemplateName": _REQUESTED[number % len(_REQUESTED)]}
        if kind < 20:
            namespace = objects.LIMITED
        elif kind < 28:
            namespace, claim = objects.TRUSTED, {"resourceClaimTemplateName": "admin"}
        elif kind < 50:
            claim = {"resourceClaimName": f"shared-{number % _SHARED_CLAIMS}"}
        name = f"p{len(self._pods)}"
        self._pods.append((namespace, name))
        await self._client.create(objects.build_pod(name, claim, namespace, **_choose_end(number // 7)))

    async def _create_claim(self, step: ScheduledStep) -> None:
        kind = _REQUESTED[step.number % len(_REQUESTED)]
        await self._client.create(objects.build_claim(f"shared-{step.number % _SHARED_CLAIMS}", kind))

    async def _fill_quota(self, step: ScheduledStep) -> None:
        """Create more claims at once than the quota allows."""
        claims = (
            objects.build_claim(f"quota-{step.number % 100}-{number}", "gpu", objects.LIMITED)
            for number in range(objects.MAX_CLAIMS)
        )
        await asyncio.gather(*(self._attempt(self._create(claim)) for claim in claims))

    def _choose_pod(self, number: int) -> tuple[str, str]:
        return self._pods[number % len(self._pods)] if self._pods else ("default", "none")

    async def _delete_pod(self, step: ScheduledStep) -> None:
        namespace, name = self._choose_pod(step.number)
        await self._client.delete(Pod, name, namespace)

    async def _delete_pod_by_force(self, step: ScheduledStep) -> None:
        namespace, name = self._choose_pod(step.number)
        await self._client.delete(Pod, name, namespace, DeleteOptions(grace_seconds=0))

    async def _recreate_pod(self, step: ScheduledStep) -> None:
        namespace, name = self._choose_pod(step.number)
        await self._client.delete(Pod, name, namespace, DeleteOptions(grace_seconds=step.number % 2))
        kind = "admin" if namespace == objects.TRUSTED else _REQUESTED[step.number % len(_REQUESTED)]
        document = objects.build_pod(name, {"resourceClaimTemplateName": kind}, namespace)
        for _ in range(5):
            await asyncio.sleep(0.3)
            try:
                await self._client.create(document)
                return
            except CALL_ERRORS:
                continue

    async def _delete_claim(self, step: ScheduledStep) -> None:
        found = (await self._client.list(ResourceClaim)).items
        if found:
            chosen = found[step.number % len(found)].metadata
            await self._client.delete(ResourceClaim, chosen.name, chosen.namespace)

    async def _write_device_status(self, step: ScheduledStep) -> None:
        found = [claim for claim in (await self._client.list(ResourceClaim)).items if claim.status.allocation]
        if not found:
            return
        chosen = found[step.number % len(found)]
        assert chosen.status.allocation is not None
        result = chosen.status.allocation.devices.results[0]
        device = {"driver": result.driver, "pool": result.pool, "device": result.device}
        if result.share_id:
            device["shareID"] = result.share_id
        patch = MergePatch({"status": {"devices": [{**device, "data": {"step": step.number}}]}})
        metadata = chosen.metadata
        await self._client.patch(
            ResourceClaim, metadata.name, patch, metadata.namespace, subresource="status"
        )

    # --- devices ---

    async def _replace_slice(self, document: objects.Document) -> None:
        name = document["metadata"]["name"]
        try:
            patch = MergePatch({"spec": document["spec"]})
            await self._client.patch(ResourceSlice, name, patch)
        except NotFoundError:
            await self._client.create(document)

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _build_gpus(self, pool: str, taint: str = "") -> objects.Document:
        devices = 1 if pool == objects.FABRIC else 2
        return objects.build_gpu_slice(pool, self._next_generation(), taint, devices)

    async def _taint_device(self, step: ScheduledStep) -> None:
        taint = _EFFECTS[step.number // 8 % 2]
        await self._replace_slice(self._build_gpus(self._choose_pool(step.number), taint))

    async def _publish_slice(self, step: ScheduledStep) -> None:
        await self._replace_slice(self._build_gpus(self._choose_pool(step.number)))

    async def _withdraw_slice(self, step: ScheduledStep) -> None:
        await self._client.delete(ResourceSlice, f"{self._choose_pool(step.number)}-gpu")

    async def _taint_by_rule(self, step: ScheduledStep) -> None:
        pool, effect = self._choose_pool(step.number), _EFFECTS[step.number // 8 % 2]
        await self._client.create(objects.build_taint_rule(f"rule-{pool}", pool, effect))

    async def _delete_taint_rule(self, step: ScheduledStep) -> None:
        await self._client.delete(DeviceTaintRule, f"rule-{self._choose_pool(step.number)}")

    async def _delete_class(self, step: ScheduledStep) -> None:
        await self._client.delete(DeviceClass, list(objects.CLASSES)[step.number % len(objects.CLASSES)])

    async def _create_class(self, step: ScheduledStep) -> None:
        name = list(objects.CLASSES)[step.number % len(objects.CLASSES)]
        await self._client.create(objects.build_class(name, objects.CLASSES[name]))

    # --- nodes ---

    async def _lose_and_fence_node(self, step: ScheduledStep) -> None:
        """Switch a machine off, fence its node, and bring it back."""
        name = self._choose_node(step.number)
        service, machine = self._cluster.services[f"agent-{name}"], self._cluster.machines[name]
        if not service.is_alive:
            return
        self._cluster.crash(service)
        machine.boot()
        await asyncio.sleep(min(step.seconds, 60.0))
        fencer = NodeFencer(self._client, name)
        with suppress(*CALL_ERRORS):
            await fence_node(fencer)
        self._cluster.start_if_down(service)
        await asyncio.sleep(min(step.seconds, 20.0))
        await fencer.unfence()

    async def repair_cluster(self) -> None:
        """Publish everything again, and take away all taints; for the end of a schedule."""
        for name, driver in objects.CLASSES.items():
            await self._attempt(self._create(objects.build_class(name, driver)))
        for rule in (await self._client.list(DeviceTaintRule)).items:
            await self._attempt(self._delete_rule(rule.metadata.name))
        for pool in (*self._cluster.machines, objects.FABRIC):
            await self._attempt(self._replace_slice(self._build_gpus(pool)))
        for name in self._cluster.machines:
            await NodeFencer(self._client, name).unfence()

    async def _create(self, document: objects.Document) -> None:
        await self._client.create(document)

    async def _delete_rule(self, name: str) -> None:
        await self._client.delete(DeviceTaintRule, name)

    async def delete_everything(self) -> None:
        """Delete all pods and claims that users have created."""
        kinds: tuple[type[Pod] | type[ResourceClaim], ...] = (Pod, ResourceClaim)
        for kind in kinds:
            for found in (await self._client.list(kind)).items:
                metadata = found.metadata
                try:
                    await self._client.delete(kind, metadata.name, metadata.namespace)
                except NotFoundError:
                    continue

    async def create_probe(self) -> None:
        """Create a pod that must run when everything works."""
        await self._client.create(objects.build_pod("probe", {"resourceClaimTemplateName": "gpu"}))


async def fence_node(fencer: NodeFencer) -> None:
    """Fence a node that is switched off, as the command line does."""
    holdings = await fencer.inspect_node()
    await fencer.add_taint()
    await fencer.remove_pods(holdings.pods)
    await fencer.delete_preparations(holdings.preparations)
    await fencer.annotate_node()


def _choose_end(number: int) -> dict[str, str]:
    """Choose when the container of a pod ends, if it does."""
    if number % 5 > 1:
        return {}
    return {"run_seconds": str(number % 11), "exit_code": str(number % 2)}
