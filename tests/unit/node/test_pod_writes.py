"""What an agent writes in the life of a pod: how much, in which calls, and what happens when a call fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dray.api.preparation import Preparation
from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.informers.informer import Informer
from dray.client.rest_client import ClientOptions
from dray.client.transactions.support import TRANSACTIONS_PATH
from dray.client.transport import TransportRequest
from dray.cluster.local.transport import LocalTransport
from dray.durable import read_boot_id
from dray.node.claims.checkpoint import Checkpoint
from dray.node.claims.record import ClaimsRecord
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.pods import pod_status_writer
from dray.server.http.requests import AUTHENTICATED, NODES
from tests.contract.intercepted_transport import InterceptedTransport
from tests.unit.node.agent_harness import (
    NODE,
    POD,
    AgentHarness,
    Document,
    container,
    pod,
    run_on_node,
    until,
)

START = {"POST preparations": 1, "POST events": 1, "PATCH pods/status": 1}
"""The claim is announced, the container started, and the pod runs."""

RESOURCES = ("preparations", "events", "pods", "leases", "nodes", "transactions")
TERMINAL = ("Failed", "Succeeded")
EMPTY_OF_THIS_BOOT = ClaimsRecord(boot_id=read_boot_id())


class Watched:
    """A node whose agent's writes are counted, and the phases of the pod as others see them."""

    def __init__(self, harness: AgentHarness, *, transactions: bool) -> None:
        inner = LocalTransport(harness.server.app, f"system:node:{NODE}", (NODES, AUTHENTICATED))
        self.harness = harness
        self.transport = InterceptedTransport(inner, transactions=transactions)
        harness.own = Client(self.transport, ClientOptions(max_attempts=1))
        self.phases: list[str] = []

    def take_writes(self) -> dict[str, int]:
        """Take the writes since the last time, without those of the Node and its lease."""
        asked, self.transport.asked = self.transport.asked, []
        names = (_name(request) for request in asked if request.method != "GET")
        return dict(Counter(name for name in names if "nodes" not in name and "leases" not in name))

    def observe(self, one: Document) -> None:
        phase = one["status"]["phase"]
        if self.phases[-1:] != [phase]:
            self.phases.append(phase)

    async def run_pod(self, *containers: Document, **spec: object) -> None:
        """Run a pod with a claim; its claim is reserved before the agent sees it."""
        await self.harness.create(pod("p", *containers, claim="gpus", **spec))
        await self.harness.claim("gpus", "p")

    async def is_clear(self) -> bool:
        """Whether nothing of the pod is left on the node and in the API."""
        found = await ProcessRuntime(self.harness.root / "containers").list_containers()
        announced = (await self.harness.admin.list(Preparation)).items
        return not (found or announced or self.harness.driver.held)


def _name(request: TransportRequest) -> str:
    parts = request.path.strip("/").split("/")
    resource = next(part for part in RESOURCES if part in parts)
    return f"{request.method} {resource}{'/status' if parts[-1] == 'status' else ''}"


def run_watched(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Watched], Awaitable[None]],
    *,
    transactions: bool = True,
) -> None:
    """Run a test with an agent whose transitional statuses wait for as long as it takes."""
    monkeypatch.setattr(pod_status_writer, "SETTLE_SECONDS", 600.0)

    async def main(harness: AgentHarness) -> None:
        watched = Watched(harness, transactions=transactions)
        informer = Informer(harness.admin, POD)
        informer.listen(
            added=watched.observe, updated=lambda _before, now: watched.observe(now), deleted=watched.observe
        )
        watching = asyncio.create_task(informer.run())
        try:
            await work(watched)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    run_on_node(folder, main)


@pytest.mark.parametrize("transactions", [True, False])
def test_a_pod_that_is_deleted_costs_two_writes_and_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactions: bool
) -> None:
    async def work(watched: Watched) -> None:
        harness = watched.harness
        await watched.run_pod()
        async with harness.agent() as agent:
            await harness.phase("p", "Running")
            await until(lambda: harness.has_event("Started"))
            assert watched.take_writes() == START
            await harness.delete("p")
            await harness.gone("p")
            await until(watched.is_clear)
            await until(lambda: harness.has_event("Killing"))
            last = {"PATCH pods/status": 1, "DELETE preparations": 1, "DELETE pods": 1}
            assert watched.take_writes() == {
                "POST events": 1,
                **({"POST transactions": 1} if transactions else last),
            }
            await until(lambda: _is(watched.phases[-1] in TERMINAL))
            assert watched.phases == ["Pending", "Running", watched.phases[-1]]
            assert agent.ready.is_set()

    run_watched(tmp_path, monkeypatch, work, transactions=transactions)


@pytest.mark.parametrize("transactions", [True, False])
def test_a_pod_that_ends_is_reported_together_with_its_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transactions: bool
) -> None:
    async def work(watched: Watched) -> None:
        harness, go = watched.harness, tmp_path / "go"
        waits = container("c", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done")
        await watched.run_pod(waits, restartPolicy="Never")
        async with harness.agent():
            await harness.phase("p", "Running")
            await until(lambda: harness.has_event("Started"))
            assert watched.take_writes() == START
            go.touch()
            await harness.phase("p", "Succeeded")
            await until(lambda: _is_withdrawn(harness))
            last = {"PATCH pods/status": 1, "DELETE preparations": 1}
            assert watched.take_writes() == ({"POST transactions": 1} if transactions else last)
            await harness.delete("p")
            await harness.gone("p")
            assert watched.take_writes() == {}, "the server deletes a finished pod by itself"
            await until(watched.is_clear)

    run_watched(tmp_path, monkeypatch, work, transactions=transactions)


def test_a_transaction_that_is_refused_is_written_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone else has deleted the Preparation in the moment before."""

    async def work(watched: Watched) -> None:
        harness = watched.harness

        async def interfere(request: TransportRequest) -> None:
            if request.path == TRANSACTIONS_PATH:
                for each in (await harness.admin.list(Preparation)).items:
                    await harness.admin.delete(Preparation, each.metadata.name)

        await watched.run_pod()
        async with harness.agent():
            await harness.phase("p", "Running")
            watched.take_writes()
            watched.transport.before = interfere
            await harness.delete("p")
            await harness.gone("p")
            await until(watched.is_clear)
            await until(lambda: _is(watched.phases[-1] in TERMINAL))
            done = watched.take_writes()
            assert (done["POST transactions"], done["PATCH pods/status"], done["DELETE pods"]) == (1, 1, 1)

    run_watched(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("lost", ["request", "response"])
def test_a_transaction_without_an_answer_is_repeated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Whether the server has done it or not: pod, Preparation and record are gone in the end."""

    async def work(watched: Watched) -> None:
        harness = watched.harness

        async def fail(request: TransportRequest) -> None:
            if request.path == TRANSACTIONS_PATH:
                raise ServerUnreachableError("the connection broke", sent=True)

        await watched.run_pod()
        async with harness.agent():
            await harness.phase("p", "Running")
            if lost == "request":
                watched.transport.before = fail
            else:
                watched.transport.after = fail
            await harness.delete("p")
            await harness.gone("p")
            await until(watched.is_clear)
            await until(lambda: _is(watched.phases[-1] in TERMINAL))
            await until(lambda: _is(Checkpoint(harness.root / "checkpoint").load() == EMPTY_OF_THIS_BOOT))

    run_watched(tmp_path, monkeypatch, work)


def test_devices_are_returned_while_the_server_is_away_and_reported_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(watched: Watched) -> None:
        harness = watched.harness
        away = asyncio.Event()

        async def fail(request: TransportRequest) -> None:
            if away.is_set() and request.method != "GET":
                raise ServerUnreachableError("the server is away", sent=False)

        watched.transport.before = fail
        await watched.run_pod()
        async with harness.agent():
            await harness.phase("p", "Running")
            away.set()
            await harness.delete("p")
            await until(lambda: _is(not harness.driver.held))
            assert (await harness.pod("p"))["status"]["phase"] == "Running"
            away.clear()
            await harness.gone("p")
            await until(watched.is_clear)

    run_watched(tmp_path, monkeypatch, work)


def test_a_pod_without_claims_is_reported_and_deleted_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(watched: Watched) -> None:
        harness = watched.harness
        async with harness.agent():
            await harness.create(pod("p"))
            await harness.phase("p", "Running")
            await until(lambda: harness.has_event("Started"))
            assert watched.take_writes() == {"POST events": 1, "PATCH pods/status": 1}
            await harness.delete("p")
            await harness.gone("p")
            await until(lambda: harness.has_event("Killing"))
            assert watched.take_writes() == {"POST events": 1, "POST transactions": 1}

    run_watched(tmp_path, monkeypatch, work)


async def _is(value: bool) -> bool:
    return value


async def _is_withdrawn(harness: AgentHarness) -> bool:
    return not (await harness.admin.list(Preparation)).items
