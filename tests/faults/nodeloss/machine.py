"""A simulated machine: its agent as the API sees it, and the real use of devices, which the API does not see.

Theory of operation: the devices are attached to a network that every machine reaches. A machine renews its
lease, prepares and uses the devices of its pods, and releases them when the pods end. Cut off, it does not
reach the API, and its pods continue. Switched off, nothing runs on it, and no one is notified. A machine that
starts to use a device in use elsewhere violates the guarantee.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation, PreparationSpec, PreparedClaim
from dray.api.resource import ResourceClaim
from dray.claims.reservation import FINISHED_PHASES, is_reserved_for
from dray.client.client import Client, DeleteOptions
from dray.client.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from dray.client.leases import Heartbeat, HeartbeatOptions
from dray.client.object_refs import ObjectSelector, get_kind
from dray.client.patches import MergePatch
from tests.e2e.use_case_cluster import node

NODE = get_kind("Node")
POD = get_kind("Pod")
LEASES = "kube-node-lease"
HEARTBEAT_SECONDS = 0.4
SPACE = "default"

T = TypeVar("T")
Device = tuple[str, str]
"""Pool and name."""


class Use(NamedTuple):
    """The start of a device's use."""

    device: Device
    where: str


@dataclass
class Hall:
    """The devices, and who really uses them."""

    uses: dict[Device, tuple[str, str]] = field(default_factory=dict)
    """Device: claim and node."""
    log: list[Use] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def begin(self, device: Device, claim: str, where: str) -> None:
        known = self.uses.get(device)
        if known is not None and known != (claim, where):
            self.violations.append(f"{device} is used by claim {known[0]} on {known[1]}, and now on {where}")
        self.uses[device] = (claim, where)
        self.log.append(Use(device, where))

    @property
    def begun(self) -> int:
        """How many uses there were."""
        return len(self.log)

    def end(self, device: Device, claim: str) -> None:
        if self.uses.get(device, ("", ""))[0] == claim:
            del self.uses[device]

    def power_off(self, where: str) -> None:
        self.uses = {device: use for device, use in self.uses.items() if use[1] != where}

    def on(self, where: str) -> set[Device]:
        return {device for device, use in self.uses.items() if use[1] == where}


class Way(StrEnum):
    """How a machine is."""

    UP = "up"
    CUT = "cut off"
    OFF = "off"


@dataclass
class _Running:
    """A pod on a machine, and what it has."""

    pod: Pod
    claim: ResourceClaim
    devices: tuple[Device, ...]
    until: float


class _PowerFailed(Exception):  # noqa: N818 - what is the case
    """Nothing goes on where it was."""


class Machine:
    """One node."""

    def __init__(self, name: str, client: Client, hall: Hall, chance: random.Random) -> None:
        self.name, self.way = name, Way.UP
        self._client, self._hall, self._chance = client, hall, chance
        self._heart = Heartbeat(
            client, name, LEASES, HeartbeatOptions(name, interval_seconds=HEARTBEAT_SECONDS)
        )
        self._running: dict[str, _Running] = {}
        self._booted = False
        self._boots = 0

    def switch_off(self) -> None:
        """Switch off: nothing runs any more, and no one is notified."""
        self.way = Way.OFF
        self._boots += 1
        self._hall.power_off(self.name)
        self._running.clear()
        self._booted = False

    async def run(self) -> None:
        """Be a node, until cancelled."""
        while True:
            if self.way is Way.UP:
                with suppress(ApiError, _PowerFailed):
                    await self._live()
            await asyncio.sleep(self._chance.uniform(0.05, HEARTBEAT_SECONDS))

    async def _sent(self, call: Awaitable[T]) -> T:
        """Return the reply of the API; it is lost when the machine was switched off meanwhile."""
        boots = self._boots
        try:
            answer = await call
        except ApiError:
            self._is_on_since(boots)
            raise
        self._is_on_since(boots)
        return answer

    def _is_on_since(self, boots: int) -> None:
        if boots != self._boots:
            raise _PowerFailed

    async def _live(self) -> None:
        if not self._booted:
            await self._boot()
        await self._sent(self._heart.renew())
        mine = ObjectSelector(fields=f"spec.nodeName={self.name}")
        pods = {
            pod.metadata.uid: pod for pod in (await self._sent(self._client.list(Pod, SPACE, mine))).items
        }
        for uid in [*self._running]:
            await self._continue(uid, pods.get(uid))
        for uid, pod in pods.items():
            if self.way is Way.UP and uid not in self._running:
                await self._admit(pod)

    async def _boot(self) -> None:
        """Release everything this node had: nothing runs after a start."""
        with suppress(AlreadyExistsError):
            await self._sent(self._client.create(node(self.name)))
        for standing in (await self._sent(self._client.list(Preparation))).items:
            if standing.spec.node_name == self.name:
                await self._sent(self._client.delete(Preparation, standing.metadata.name))
        self._booted = True

    async def _continue(self, uid: str, pod: Pod | None) -> None:
        running = self._running.get(uid)
        if running is None:
            return  # the power failed while another pod was looked after
        over = asyncio.get_running_loop().time() >= running.until
        if pod is not None and pod.metadata.deletion_timestamp is None and not over:
            return
        for device in running.devices:
            self._hall.end(device, running.claim.metadata.uid)
        del self._running[uid]
        with suppress(NotFoundError):
            await self._sent(self._client.delete(Preparation, self._preparation(running.claim).metadata.name))
        if pod is not None:
            await self._finish(pod)

    async def _finish(self, pod: Pod) -> None:
        with suppress(NotFoundError, ConflictError):
            if pod.metadata.deletion_timestamp is not None:
                how = DeleteOptions(uid=pod.metadata.uid, grace_seconds=0)
                await self._sent(self._client.delete(POD, pod.metadata.name, SPACE, how))
            else:
                done = MergePatch({"status": {"phase": "Succeeded"}})
                await self._sent(
                    self._client.patch(POD, pod.metadata.name, done, SPACE, subresource="status")
                )

    async def _admit(self, pod: Pod) -> None:
        if pod.status.phase in FINISHED_PHASES:
            return
        if pod.metadata.deletion_timestamp is not None:
            await self._finish(pod)
            return
        for name in _claims(pod):
            await self._start(pod, await self._sent(self._client.get(ResourceClaim, name, SPACE)))

    async def _start(self, pod: Pod, claim: ResourceClaim) -> None:
        if claim.status.allocation is None or not is_reserved_for(claim, pod):
            return
        await self._sent(self._client.create(self._preparation(claim)))  # who is refused does not begin
        devices = tuple((each.pool, each.device) for each in claim.status.allocation.devices.results)
        for device in devices:
            self._hall.begin(device, claim.metadata.uid, self.name)
        until = asyncio.get_running_loop().time() + self._chance.uniform(0.3, 2.0)
        self._running[pod.metadata.uid] = _Running(pod, claim, devices, until)

    def _preparation(self, claim: ResourceClaim) -> Preparation:
        metadata = claim.metadata
        held = PreparedClaim(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
        return Preparation(
            metadata=ObjectMeta(name=f"{metadata.uid}.{self.name}"),
            spec=PreparationSpec(node_name=self.name, claim=held),
        )


def _claims(pod: Pod) -> Iterator[str]:
    for said in pod.status.resource_claim_statuses:
        if said.resource_claim_name is not None:
            yield said.resource_claim_name
