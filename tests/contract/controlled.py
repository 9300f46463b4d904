"""A server in this process with controllers, and helpers for pods and claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client, DeleteOptions
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.controllers.runner import ControllerOptions, ControllerRunner
from dray.controllers.workqueue import WorkQueue
from tests.contract.documents import allocation, claim, template
from tests.contract.servers import Reach, reaching

SOON = 45.0
"""Seconds in which controllers do whatever they do."""

Document = dict[str, Any]

CONTROLLER = "dray:controller"
"""Who the controllers are: somebody with the rights of their role, and no others."""
POD = get_kind("Pod")
EVENT = get_kind("Event")


def pod(name: str, *entries: Document, namespace: str = "default", **spec: Any) -> Document:
    """A pod with claims; an entry is written as in its spec."""
    containers = [
        {"name": "c", "image": "i", "resources": {"claims": [{"name": e["name"]} for e in entries]}}
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": containers, "resourceClaims": list(entries), **spec},
    }


def by_template(entry: str = "gpu", name: str = "t") -> Document:
    return {"name": entry, "resourceClaimTemplateName": name}


def by_name(name: str, entry: str = "gpu") -> Document:
    return {"name": entry, "resourceClaimName": name}


MARKER_NAMESPACE = "kube-system"


class World:
    """A server, an administrator, and controllers that can be started and stopped."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.client = reach.client()
        self.controllers: ControllerRunner | None = None
        self._markers = count()

    @asynccontextmanager
    async def controlled(
        self, client: Client | None = None, choices: ControllerOptions | None = None, *, waiting: bool = True
    ) -> AsyncIterator[ControllerRunner]:
        """Controllers while the block lasts, from when they are ready; a fault in them fails the test."""
        controllers = ControllerRunner(client or self.reach.client(user=CONTROLLER), choices)
        self.controllers = controllers
        task = asyncio.create_task(controllers.run())
        ready = asyncio.create_task(controllers.ready.wait())
        if waiting:
            await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield controllers
        finally:
            fault = task.exception() if task.done() else None
            for each in (task, ready):
                each.cancel()
            await asyncio.wait((task, ready))
            if fault is not None:
                raise fault

    async def make(self, *documents: Document) -> Any:
        made: Any = None
        for document in documents:
            made = await self.client.create(document)
        return made

    async def pod(self, name: str) -> Pod:
        return await self.client.get(Pod, name, "default")

    async def claim(self, name: str) -> ResourceClaim:
        return await self.client.get(ResourceClaim, name, "default")

    async def claims(self) -> list[ResourceClaim]:
        return list((await self.client.list(ResourceClaim, "default")).items)

    async def recorded(self, name: str) -> dict[str, str | None]:
        statuses = (await self.pod(name)).status.resource_claim_statuses
        return {status.name: status.resource_claim_name for status in statuses}

    async def until_recorded(self, name: str, count: int = 1) -> dict[str, str]:
        """Wait until a pod has its claims."""
        return await self.until(lambda: self.recorded(name), lambda found: len(found) >= count)

    async def allocate(self, name: str, *pods: str, **given: Any) -> None:
        """Do what a scheduler does: devices and reservations in one write."""
        uids = {each: (await self.pod(each)).metadata.uid for each in pods}
        consumers = [{"resource": "pods", "name": each, "uid": uid} for each, uid in uids.items()]
        status = {"status": {"allocation": allocation(**given), "reservedFor": consumers}}
        await self.client.patch(ResourceClaim, name, MergePatch(status), "default", subresource="status")

    async def bind(self, name: str, node: str = "node-1") -> None:
        await self.client.bind(name, "default", node)

    async def end(self, name: str, phase: str = "Succeeded") -> None:
        """Let a pod end by itself."""
        change = MergePatch({"status": {"phase": phase}})
        await self.client.patch(POD, name, change, "default", subresource="status")

    async def delete(self, name: str, **how: Any) -> None:
        await self.client.delete(POD, name, "default", DeleteOptions(**({"grace_seconds": 0} | how)))

    async def told(self, reason: str) -> list[str]:
        """What events with a reason say."""
        events = (await self.client.list(EVENT, "default")).items
        return [event.get("message", "") for event in events if event.get("reason") == reason]

    async def until(self, ask: Callable[[], Any], is_so: Callable[[Any], bool] = bool) -> Any:
        """Wait until an answer is as it should be."""
        now = asyncio.get_running_loop().time
        end = now() + SOON
        while not is_so(found := await ask()):
            assert now() < end, f"it stays as it is: {found}"
            await asyncio.sleep(0.01)
        return found

    async def until_processed(self) -> None:
        """Wait until a marker pod went through the claim controller, and nothing before it is in work.

        The marker is in another namespace than the objects of tests.
        """
        name = f"marker-{next(self._markers)}"
        documents = [template(name), pod(name, by_template(name=name))]
        for document in documents:
            document["metadata"]["namespace"] = MARKER_NAMESPACE
        await self.make(*documents)

        async def is_recorded() -> bool:
            marker = await self.client.get(Pod, name, MARKER_NAMESPACE)
            return bool(marker.status.resource_claim_statuses)

        await self.until(is_recorded)
        await self.until_idle()

    async def until_idle(self) -> None:
        """Wait until no controller has a key that waits or is in work."""

        async def is_idle() -> bool:
            assert self.controllers is not None
            return all(cast(WorkQueue[Any], queue).is_idle for queue in self.controllers._queues)

        await self.until(is_idle)

    async def stays_when_processed(self, ask: Callable[[], Any]) -> Any:
        """Check that an answer does not change until the claim controller has processed everything."""
        before = await ask()
        await self.until_processed()
        after = await ask()
        assert before == after
        return after

    async def stays(self, ask: Callable[[], Any], seconds: float = 0.3) -> Any:
        """Let some time pass in which an answer should not change."""
        before = await ask()
        await asyncio.sleep(seconds)
        after = await ask()
        assert before == after
        return after


@asynccontextmanager
async def world(way: str, directory: Path) -> AsyncIterator[World]:
    async with reaching(way, directory) as reach:
        yield World(reach)


__all__ = ["World", "by_name", "by_template", "claim", "pod", "template", "world"]
