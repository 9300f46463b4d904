"""A whole cluster in this process that is stopped and started again with other gates, on the same files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dray.client.transport import TransportRequest
from dray.clock import SystemClock
from dray.cluster.local.cluster import LocalClusterOptions, open_cluster
from dray.cluster.services.api_server import ServerProcessOptions
from dray.cluster.services.components import ComponentOptions
from dray.gates import GateSet
from dray.server.http.application import ApiApplication
from dray.store.memory import MemoryStore
from dray.telemetry.logs import StructuredLogger
from tests.contract.api import SOON, Api, path

Document = dict[str, Any]

CLAIMS = "resourceclaims"


class Cluster(Api):
    """A cluster as its administrator sees it."""

    def __init__(self, app: ApiApplication) -> None:
        super().__init__(app, MemoryStore(), groups=("system:masters",))

    async def make(self, *documents: Document) -> None:
        for document in documents:
            await self.create(document)

    async def bound(self, pod: str) -> str:
        """The node of a pod, as soon as it has one."""
        found = await self.until(path("pods", pod), lambda said: said.document["spec"].get("nodeName"))
        return str(found["spec"]["nodeName"])

    async def pending(self, pod: str, *words: str) -> str:
        """Why a pod has no node, as soon as all these words are in it."""

        def told(document: Document) -> str:
            assert "nodeName" not in document["spec"], document["spec"]["nodeName"]
            conditions = document["status"].get("conditions", [])
            return "".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

        def is_told(said: Any) -> bool:
            why = told(said.document)
            return bool(why) and all(word in why for word in words)

        return told(await self.until(path("pods", pod), is_told))

    async def told(self, pod: str, *words: str) -> None:
        """Wait until an event of a pod says all this."""

        def is_told(said: Any) -> bool:
            events = [each for each in said.document["items"] if each["involvedObject"]["name"] == pod]
            return any(all(word in event["message"] for word in words) for event in events)

        await self.until(path("events"), is_told)

    async def kept(self) -> dict[str, bytes]:
        """Every claim that has devices, byte for byte."""
        found: dict[str, bytes] = {}
        for claim in (await self.get(path(CLAIMS)))["items"]:
            if "allocation" in claim.get("status", {}):
                where = path(CLAIMS, claim["metadata"]["name"])
                found[where] = await self.bytes_at(where)
        return found

    async def are_kept(self, claims: dict[str, bytes]) -> None:
        """These claims are as they were, byte for byte."""
        assert {where: await self.bytes_at(where) for where in claims} == claims

    async def bytes_at(self, where: str) -> bytes:
        reply = await self._transport.request(TransportRequest("GET", where))
        assert reply.code == 200, reply.body
        return reply.body

    async def results(self, claim: str) -> list[Document]:
        document = await self.get(path(CLAIMS, claim))
        found: list[Document] = document["status"]["allocation"]["devices"]["results"]
        return found

    async def devices(self, claim: str) -> list[str]:
        """What a claim has: request and device of each."""
        return [f"{each['request']} {each['device']}" for each in await self.results(claim)]

    async def got(self, pod: str) -> list[str]:
        """What the claim that was made for a pod has."""
        (status,) = (await self.get(path("pods", pod)))["status"]["resourceClaimStatuses"]
        return await self.devices(status["resourceClaimName"])

    async def ends(self, pod: str) -> None:
        await self.delete(path("pods", pod), {"gracePeriodSeconds": 0})
        await self.gone(path("pods", pod))

    async def until_free(self, claim: str) -> None:
        await self.until(
            path(CLAIMS, claim), lambda said: "allocation" not in said.document.get("status", {})
        )


class Restarts:
    """One directory, one cluster after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @asynccontextmanager
    async def running(
        self, every: str = "", *, server: str = "", scheduler: str = "", controller: str = ""
    ) -> AsyncIterator[Cluster]:
        """A cluster with these gates everywhere, and others in single components."""
        lines: list[str] = []

        def took(line: bytes) -> bool:
            lines.append(line.decode())
            return True

        log = StructuredLogger(took, SystemClock())
        base = GateSet.parse(every)
        gates = [GateSet.parse(own, base) for own in (server, scheduler, controller)]
        options = LocalClusterOptions(
            ServerProcessOptions(self._directory, port=0, gates=gates[0], log=log),
            ComponentOptions(gates[1], leader_elect=False, log=log),
            ComponentOptions(gates[2], leader_elect=False, log=log, upkeep=True),
            nodes=0,
        )
        async with open_cluster(options) as up:
            async with asyncio.timeout(SOON):
                await up.wait_until_ready()
            yield Cluster(up.server.app)
        assert [line for line in lines if " ERROR " in line] == []
