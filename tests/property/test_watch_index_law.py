"""An indexed watch yields the events of an unindexed one that its selector selects, and a list its objects.

Pods of two namespaces are created, bound, labelled and deleted, some in one write. Watches begin at any
revision, at any time: some read the recent changes of the cache, some those of the store, some neither. The
truth is computed from the writes: an object that begins to match is ADDED, one that ceases to is DELETED.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from dray.api.kinds import get_kind
from dray.clock import ManualClock
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser
from dray.server.http.responses import ResponseWriter
from dray.server.objects.stored_object import build_key, encode_document
from dray.server.registry.reader import StoredObjectReader
from dray.server.registry.watch_server import WatchServer
from dray.server.watch.cache import WatchCache
from dray.store import Delete, Put
from dray.store.errors import StoreClosedError
from dray.store.memory import MemoryStore
from tests.effort import effort

PODS = get_kind("", "Pod")
NAMESPACES, NAMES, NODES, TEAMS = ("a", "b"), ("p", "q", "qq"), ("", "n1", "n2"), ("", "red", "blue")


class Pod(NamedTuple):
    """What selectors look at; an empty team means no label."""

    node: str
    team: str


class Seen(NamedTuple):
    """One event, or one object of a list without its type."""

    type: str
    key: tuple[str, str]
    version: int
    pod: Pod


class Selector(NamedTuple):
    """A namespace and what is required; None requires nothing."""

    namespace: str = ""
    node: str | None = None
    name: str | None = None
    team: str | None = None
    unequal: bool = False
    """Whether the node must be another one."""

    def selects(self, key: tuple[str, str], pod: Pod | None) -> bool:
        return (
            pod is not None
            and self.namespace in ("", key[0])
            and (self.node is None or (pod.node == self.node) != self.unequal)
            and self.name in (None, key[1])
            and self.team in (None, pod.team)
        )

    def build_query(self) -> dict[str, str]:
        operator = "!=" if self.unequal else "="
        fields = [] if self.node is None else [f"spec.nodeName{operator}{self.node}"]
        fields += [] if self.name is None else [f"metadata.name={self.name}"]
        labels = "" if self.team is None else f"team={self.team}" if self.team else "!team"
        query = {"fieldSelector": ",".join(fields), "labelSelector": labels}
        return {name: value for name, value in query.items() if value}


class Watching(NamedTuple):
    """A watch that opens after some writes, at the revision after some of them; None asks for everything."""

    selector: Selector
    opens: int
    since: int | None


KEYS = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(NAMES))
STATES = st.none() | st.builds(Pod, st.sampled_from(NODES), st.sampled_from(TEAMS))
WRITES = st.lists(st.dictionaries(KEYS, STATES, min_size=1, max_size=3), max_size=10)
SELECTORS = st.builds(
    Selector,
    st.sampled_from(("", *NAMESPACES)),
    st.none() | st.sampled_from(NODES),
    st.none() | st.sampled_from(NAMES),
    st.none() | st.sampled_from(TEAMS),
    st.booleans(),
)
WATCHES = st.lists(
    st.builds(Watching, SELECTORS, st.integers(0, 10), st.none() | st.integers(0, 10)), min_size=1, max_size=6
)

Write = Mapping[tuple[str, str], Pod | None]


class Cluster:
    """A store with its cache, the watch server, and the truth."""

    def __init__(self, kept: int) -> None:
        self.store = MemoryStore()
        self.cache = WatchCache(self.store, kept)
        self.reader = StoredObjectReader(self.store, self.cache)
        responses = ResponseWriter(self.cache, ManualClock().now)
        self.server = WatchServer(self.cache, self.reader, responses, lambda _most: 0)
        self.state: dict[tuple[str, str], tuple[int, Pod]] = {}
        self.changes: list[tuple[int, tuple[str, str], Pod | None, Pod | None]] = []
        """Revision, key, and the pod before and after."""
        self.revisions: list[int] = []
        """Before the first write, and after each."""

    async def apply(self, write: Write) -> None:
        steps: list[Put | Delete] = []
        for key, pod in write.items():
            if pod is not None:
                steps.append(Put(build_key(PODS, *key), encode_document(PODS, build_document(key, pod))))
            elif key in self.state:
                steps.append(Delete(build_key(PODS, *key)))
        revision = self.revisions[-1]
        if steps:
            revision = (await self.store.txn([], steps)).revision
            for key, pod in write.items():
                before = self.state.pop(key, (0, None))[1]
                if before is not None or pod is not None:
                    self.changes.append((revision, key, before, pod))
                if pod is not None:
                    self.state[key] = (revision, pod)
        self.revisions.append(revision)

    async def collect(self, watching: Watching, seen: list[Seen]) -> None:
        """Collect the events of a watch until the server stops."""
        query = watching.selector.build_query()
        if watching.since is not None:
            query["resourceVersion"] = str(self.revisions[min(watching.since, len(self.revisions) - 1)])
        opened: Any = await self.server.open(self._build_request("watch", watching.selector, query), PODS)
        async for part in opened.body:
            seen += map(read_seen, part.splitlines())

    async def list_pods(self, selector: Selector) -> list[Seen]:
        listing = await self.reader.list(self._build_request("list", selector, selector.build_query()), PODS)
        found = [{"type": "", "object": stored.document} for stored in listing.objects]
        return [read_seen(json.dumps(each).encode()) for each in found]

    @staticmethod
    def _build_request(verb: str, selector: Selector, query: dict[str, str]) -> ApiRequest:
        call = ApiCall(verb, "", PODS, "", "v1", "pods", selector.namespace, query=query)
        return ApiRequest(call, RequestUser("u"))

    def expect_list(self, selector: Selector) -> list[Seen]:
        return [
            Seen("", key, revision, pod)
            for key, (revision, pod) in sorted(self.state.items())
            if selector.selects(key, pod)
        ]

    def expect_events(self, selector: Selector, after: int) -> list[Seen]:
        expected = []
        for revision, key, before, now in self.changes:
            if revision <= after:
                continue
            was, is_now = selector.selects(key, before), selector.selects(key, now)
            if now is not None and is_now:
                expected.append(Seen("MODIFIED" if was else "ADDED", key, revision, now))
            elif before is not None and was:
                expected.append(Seen("DELETED", key, revision, before))
        return expected


def build_document(key: tuple[str, str], pod: Pod) -> dict[str, Any]:
    namespace, name = key
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if pod.team:
        metadata["labels"] = {"team": pod.team}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if pod.node:
        spec["nodeName"] = pod.node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def read_seen(line: bytes) -> Seen:
    event = json.loads(line)
    found = event["object"]
    assert event["type"] != "ERROR", found
    metadata = found["metadata"]
    pod = Pod(found["spec"].get("nodeName", ""), metadata.get("labels", {}).get("team", ""))
    key = (metadata["namespace"], metadata["name"])
    return Seen(event["type"], key, int(metadata["resourceVersion"]), pod)


class Opened(NamedTuple):
    """A watch that has begun: what it has sent, what it must send first, and the revision it is after."""

    watching: Watching
    seen: list[Seen]
    initial: list[Seen]
    after: int
    task: asyncio.Task[None]


def open_watch(cluster: Cluster, watching: Watching, step: int) -> Opened:
    initial, after = [], cluster.revisions[-1]
    if watching.since is None:
        initial = [seen._replace(type="ADDED") for seen in cluster.expect_list(watching.selector)]
    else:
        after = cluster.revisions[min(watching.since, step)]
    seen: list[Seen] = []
    return Opened(watching, seen, initial, after, asyncio.create_task(cluster.collect(watching, seen)))


async def run_case(writes: list[Write], watches: list[Watching], kept: int) -> None:
    cluster = Cluster(kept)
    await cluster.cache.resync()
    cluster.revisions.append(cluster.cache.revision)
    following = asyncio.create_task(cluster.cache.follow())
    opened: list[Opened] = []
    for step in range(len(writes) + 1):
        await cluster.cache.wait_until_fresh()
        for watching in watches:
            assert await cluster.list_pods(watching.selector) == cluster.expect_list(watching.selector)
            if min(watching.opens, len(writes)) == step:
                opened.append(open_watch(cluster, watching, step))
        for _ in range(4):
            await asyncio.sleep(0)  # some watches have begun at the next write, some have not
        if step < len(writes):
            await cluster.apply(writes[step])
    await cluster.cache.wait_until_fresh()
    await check_watches(cluster, opened)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await cluster.store.close()


async def check_watches(cluster: Cluster, opened: list[Opened]) -> None:
    """Wait until every watch has sent as many events as it must, end it, and compare."""
    for each in opened:
        expected = each.initial + cluster.expect_events(each.watching.selector, each.after)
        async with asyncio.timeout(60):
            while len(each.seen) < len(expected):
                await asyncio.sleep(0)
    cluster.cache.hub.close(StoreClosedError("done"))
    for each in opened:
        async with asyncio.timeout(60):
            await each.task
        expected = each.initial + cluster.expect_events(each.watching.selector, each.after)
        assert each.seen == expected, each.watching


P, Q = ("a", "p"), ("a", "qq")


@effort(0.5)
@given(WRITES, WATCHES, st.sampled_from((0, 2, 5, 1000)))
@example([{P: Pod("", "")}, {P: Pod("n1", "")}, {P: None}], [Watching(Selector(node="n1"), 0, 0)], 1000)
@example([{P: Pod("", "")}, {P: Pod("n1", "")}, {P: None}], [Watching(Selector(node="n1"), 3, 0)], 1000)
@example([{P: Pod("n1", "")}, {P: Pod("n2", ""), Q: Pod("n1", "")}], [Watching(Selector(node="n1"), 2, 1)], 2)
@example([{P: Pod("", "red")}, {P: Pod("", "blue")}], [Watching(Selector(team="red"), 0, None)], 1000)
@example([{Q: Pod("", "")}, {Q: Pod("n1", "")}], [Watching(Selector("a", name="q"), 0, 0)], 1000)
def test_an_indexed_watch_yields_what_a_filter_of_all_changes_yields(writes, watches, kept):
    asyncio.run(run_case(writes, watches, kept))
