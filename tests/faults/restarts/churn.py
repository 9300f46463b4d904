"""Pods that come and go: with claims of their own, with claims they share, and some that nobody can place."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

from dray.client.client import Client, DeleteOptions
from dray.client.errors import ApiError, NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import CALL_ERRORS
from tests.contract.documents import claim, device_class, request, resource_slice
from tests.e2e.use_case_cluster import named, node, pod, template

POD = get_kind("Pod")
CLAIM = get_kind("ResourceClaim.resource.k8s.io")
NODES, DEVICES, SHARED = 4, 4, 4

Document = dict[str, Any]


def build_cluster_objects() -> list[Document]:
    """Nodes with devices, templates for one, two and too many, and claims to share."""
    made: list[Document] = [device_class()]
    for number in range(NODES):
        name = f"n{number}"
        made += [node(name), resource_slice(f"s{number}", name, DEVICES)]
    made += [_template(name, count) for name, count in (("one", 1), ("two", 2), ("many", DEVICES + 1))]
    return [*made, *(claim(f"shared-{number}") for number in range(SHARED))]


def _template(name: str, count: int) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [request(count=count)]}}},
    }


class Churn:
    """Creates pods and ends them."""

    def __init__(self, client: Client, rng: random.Random, *, most: int = 30) -> None:
        self._client, self._rng, self._most = client, rng, most
        self._numbers = itertools.count(1)
        self._alive: list[str] = []
        self.made = self.ended = 0

    async def furnish(self) -> None:
        for document in build_cluster_objects():
            await self._client.create(document)

    async def go_on(self, seconds: float, pause: float = 0.05) -> None:
        """Make and end pods for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                await self._something()
            except CALL_ERRORS as failed:
                if isinstance(failed, ApiError) and not isinstance(failed, NotFoundError):
                    raise
            await asyncio.sleep(self._rng.uniform(0, 2 * pause))

    async def _something(self) -> None:
        if len(self._alive) < self._most * self._rng.random():
            await self._make()
        elif self._alive:
            await self._end(self._alive.pop(self._rng.randrange(len(self._alive))))

    async def _make(self) -> None:
        name = f"p{next(self._numbers)}"
        sort = self._rng.choices(("one", "two", "shared", "mixed", "many"), (8, 4, 5, 2, 1))[0]
        some = named(f"shared-{self._rng.randrange(SHARED)}", "s")
        entries = {"shared": [some], "mixed": [some, template("one", "t")]}.get(sort, [template(sort)])
        document = pod(name, *entries)
        document["metadata"]["namespace"] = "default"
        await self._client.create(document)
        self._alive.append(name)
        self.made += 1

    async def _end(self, name: str) -> None:
        """A pod ends by itself and is removed later, or goes at once."""
        if self._rng.random() < 0.4:
            over = MergePatch({"status": {"phase": self._rng.choice(("Succeeded", "Failed"))}})
            await self._client.patch(POD, name, over, "default", subresource="status")
            if self._rng.random() < 0.5:
                self.ended += 1
                return
        await self._client.delete(POD, name, "default", DeleteOptions(grace_seconds=0))
        self.ended += 1

    async def leave(self) -> None:
        """Delete every pod and every shared claim."""
        for found in (await self._client.list(POD, "default")).items:
            await self._client.delete(
                POD, found["metadata"]["name"], "default", DeleteOptions(grace_seconds=0)
            )
        for number in range(SHARED):
            await self._client.delete(CLAIM, f"shared-{number}", "default")
