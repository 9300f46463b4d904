"""What agents that watch cost everybody else: `python -m bench.watches [--pods N] [--writes N]`.

A server with a durable store and its audit log runs in this process, with watchers that each follow the pods
of one node and that node, as agents do. Counted is the time of the processor: for one write of a pod, for a
list of the pods of one node, and for a watch that starts as many changes behind as there were writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dray.api.json_text import read_json, write_json
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.server.http.application import ApiApplication, InProcessRequest
from dray.server.http.requests import AUTHENTICATED, MASTERS, NODES, ApiResponse, RequestUser

CROWDS = (0, 100, 500, 1000)
NODE_COUNT = max(CROWDS)
AIM = "aim: with 1,000 nodes a write costs at most 1.1 times what it costs with none"

PODS, NODE_LIST = "/api/v1/namespaces/bench/pods", "/api/v1/nodes"
ADMIN = RequestUser("bench", (MASTERS, AUTHENTICATED))
INITIAL_EVENTS = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
INITIAL_EVENTS_END = b"k8s.io/initial-events-end"
STATUS_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class CrowdFigures:
    """Processor time of one operation, in milliseconds, while `nodes` agents watch."""

    nodes: int
    write: float
    list: float
    resumed: float
    events: int
    """Changes that the watchers got during the writes."""


class Agent:
    """The two watches of an agent, which are read as fast as they come."""

    def __init__(self, app: ApiApplication, number: int) -> None:
        self._app, self._name = app, f"node-{number}"
        self.user = RequestUser(f"system:node:{self._name}", (NODES, AUTHENTICATED))
        self.events = 0

    async def follow(self, opened: asyncio.Semaphore) -> None:
        """Read both watches until cancelled; release `opened` for each that has begun."""
        async with asyncio.TaskGroup() as tasks:
            for path, selector in (
                ("/api/v1/pods", self.pod_selector),
                (NODE_LIST, f"metadata.name={self._name}"),
            ):
                tasks.create_task(self._read(path, selector, opened))

    @property
    def pod_selector(self) -> str:
        return f"spec.nodeName={self._name}"

    async def _read(self, path: str, selector: str, opened: asyncio.Semaphore) -> None:
        has_begun = False
        async for part in _iterate_watch(self._app, self.user, path, selector, **INITIAL_EVENTS):
            if has_begun:
                self.events += part.count(b"\n")
            elif INITIAL_EVENTS_END in part:
                has_begun = True
                opened.release()

    async def list_pods(self) -> None:
        await _call(self._app, "GET", "/api/v1/pods", user=self.user, fieldSelector=self.pod_selector)

    async def resume(self, version: str, count: int) -> None:
        """Read the pods of the node from an old version until as many events have come."""
        stream = _iterate_watch(
            self._app, self.user, "/api/v1/pods", self.pod_selector, resourceVersion=version
        )
        while count > 0:
            count -= (await anext(stream)).count(b"\n")
        await stream.aclose()


async def _iterate_watch(
    app: ApiApplication, user: RequestUser, path: str, selector: str, **query: str
) -> AsyncGenerator[bytes, None]:
    query |= {"watch": "true", "fieldSelector": selector}
    answer = await app.serve_in_process(InProcessRequest("GET", path, query, {}), user)
    assert not isinstance(answer.body, bytes), answer.body
    async with aclosing(answer.body) as parts:  # type: ignore[type-var]
        async for part in parts:
            yield bytes(part)


async def _call(
    app: ApiApplication, method: str, path: str, body: Any = None, user: RequestUser = ADMIN, **query: str
) -> Any:
    headers = {"content-type": STATUS_PATCH if method == "PATCH" else "application/json"}
    content = b"" if body is None else write_json(body)
    answer: ApiResponse = await app.serve_in_process(
        InProcessRequest(method, path, query, headers, content), user
    )
    assert isinstance(answer.body, bytes)
    if answer.code >= 300:
        raise SystemExit(f"{method} {path} was answered {answer.code}: {answer.body.decode()[:300]}")
    return read_json(answer.body)


def build_pod(number: int) -> dict[str, Any]:
    """A pod of the node with this number; the nodes take turns."""
    container = {"name": "main", "image": "example.com/image:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p-{number}", "namespace": "bench"},
        "spec": {"nodeName": f"node-{number % NODE_COUNT}", "containers": [container]},
    }


async def fill(app: ApiApplication, pods: int) -> None:
    """Create the namespace, the nodes and their pods."""
    for path, name in (
        ("/api/v1/namespaces", "bench"),
        *((NODE_LIST, f"node-{n}") for n in range(NODE_COUNT)),
    ):
        kind = "Namespace" if name == "bench" else "Node"
        await _call(app, "POST", path, {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
    for number in range(pods):
        await _call(app, "POST", PODS, build_pod(number))


async def write(app: ApiApplication, pods: int, writes: int) -> str:
    """Change the status of pods in turn; return the version before."""
    before = (await _call(app, "GET", NODE_LIST, limit="1"))["metadata"]["resourceVersion"]
    for number in range(writes):
        status = {"status": {"message": f"{number} of {time.monotonic_ns()}"}}
        await _call(app, "PATCH", f"{PODS}/p-{number % pods}/status", status)
    return str(before)


@asynccontextmanager
async def followed(app: ApiApplication, nodes: int) -> AsyncIterator[Sequence[Agent]]:
    """As many agents, with open watches."""
    agents, opened = [Agent(app, number) for number in range(nodes)], asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(agent.follow(opened)) for agent in agents]
        for _ in range(2 * nodes):
            await opened.acquire()
        yield agents
        for task in following:
            task.cancel()


async def measure_crowd(app: ApiApplication, nodes: int, pods: int, writes: int) -> CrowdFigures:
    async with followed(app, nodes) as agents:
        busy = time.process_time()
        before = await write(app, pods, writes)
        written = time.process_time() - busy
        await asyncio.sleep(0)
    asking = [Agent(app, number) for number in range(100)]
    busy = time.process_time()
    for agent in asking:
        await agent.list_pods()
    listed = time.process_time() - busy
    busy = time.process_time()
    for number, agent in enumerate(asking):
        await agent.resume(before, sum(1 for n in range(writes) if n % pods % NODE_COUNT == number))
    resumed = time.process_time() - busy
    return CrowdFigures(
        nodes,
        written / writes * 1000,
        listed / len(asking) * 1000,
        resumed / len(asking) * 1000,
        sum(agent.events for agent in agents),
    )


async def measure(pods: int, writes: int, rounds: int) -> list[CrowdFigures]:
    """The figures of each crowd; the best of a few rounds of each."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        async with open_server(ServerProcessOptions(Path(name) / "data", port=0)) as server:
            await fill(server.app, pods)
            await write(server.app, pods, writes)  # the first writes are slower
            found: dict[int, list[CrowdFigures]] = {nodes: [] for nodes in CROWDS}
            for _ in range(rounds):
                for nodes in CROWDS:
                    found[nodes].append(await measure_crowd(server.app, nodes, pods, writes))
    return [
        CrowdFigures(
            nodes,
            min(each.write for each in several),
            min(each.list for each in several),
            min(each.resumed for each in several),
            max(each.events for each in several),
        )
        for nodes, several in found.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.watches", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000, help="pods, spread over 1,000 nodes")
    parser.add_argument("--writes", type=int, default=1000, help="writes of a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    chosen = parser.parse_args(arguments)
    figures = asyncio.run(measure(chosen.pods, chosen.writes, chosen.rounds))
    print(f"{'processor ms':>14}{'a write':>12}{'a list':>12}{'a resumed watch':>18}{'events':>10}")
    for each in figures:
        costs = f"{each.write:>12.2f}{each.list:>12.2f}{each.resumed:>18.2f}"
        print(f"{each.nodes:>8} nodes{costs}{each.events:>10,}")
    print(
        f"\na write with {figures[-1].nodes} nodes: {figures[-1].write / figures[0].write:.2f} times; {AIM}"
    )
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(each) for each in figures], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
