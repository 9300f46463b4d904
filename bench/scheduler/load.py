"""The load: objects that exist before, then pods in a burst or at a steady backlog.

Theory of operation: many open connections share one queue of requests. One more connection watches all pods
and records when each was bound; that, and no metric of the scheduler itself, is what is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from bench.lean import Address, ChunkDecoder, Wire, connect, packed
from bench.scheduler import objects
from bench.scheduler.figures import Figures, samples
from bench.scheduler.objects import BEFORE, NAMESPACE, Document
from bench.scheduler.workloads import Workload

CREATORS: Final = 30
LONGEST_BURST: Final = 180.0
LONGEST_PREPARATION: Final = 300.0
PREPARATION_STALL: Final = 30.0
LONGEST_ACCOUNT_WAIT, ACCOUNT_STEP = 30.0, 0.2
FORBIDDEN, CONFLICT = 403, 409
SEED: Final = 5

Item = TypeVar("Item")

_ENCODER = msgspec.json.Encoder()
_GONE: Final = _ENCODER.encode({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


class _Named(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Spec(msgspec.Struct):
    node: str = msgspec.field(default="", name="nodeName")


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Named
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_EVENT = msgspec.json.Decoder(_Event)


class Refused(Exception):  # noqa: N818 - what is the case
    """The server refused a request of the load."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def _read_message(answer: bytes) -> str:
    """Return the message of a Status, or the beginning of another text, on one line."""
    try:
        text = str(msgspec.json.decode(answer)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        text = answer.decode("utf-8", "replace")
    return " ".join(text.split())[:300]


class Sender:
    """Sends requests over many connections, as many at a time as there are connections."""

    def __init__(self, wires: list[Wire], headers: str = "") -> None:
        self._headers = headers
        self._free: asyncio.Queue[Wire] = asyncio.Queue()
        for wire in wires:
            self._free.put_nowait(wire)

    async def send(self, method: str, path: str, document: Document | bytes = b"") -> bytes:
        body = document if isinstance(document, bytes) else _ENCODER.encode(document)
        wire = await self._free.get()
        try:
            code, answer = await wire.call(packed(method, path, body, self._headers))
        finally:
            self._free.put_nowait(wire)
        if code >= 400 and not (method == "DELETE" and code == 404):
            raise Refused(f"{method} {path}: {code} {_read_message(answer)}", code)
        return answer

    async def create_all(self, path: str, documents: Iterable[Document]) -> None:
        await self.for_each(documents, lambda document: self.send("POST", path, document))

    async def delete_all(self, paths: Iterable[str]) -> None:
        """Delete objects at once, without a grace period; those that are gone count as deleted."""
        await self.for_each(paths, lambda path: self.send("DELETE", path, _GONE))

    async def for_each(self, items: Iterable[Item], act: Callable[[Item], Awaitable[object]]) -> None:
        waiting = iter(items)

        async def worker() -> None:
            for item in waiting:
                await act(item)

        await asyncio.gather(*(worker() for _ in range(CREATORS)))


@dataclass
class PodTimes:
    """When pods were created, and when each was seen with a node, or running where agents run them."""

    runs: bool = False
    """Whether a pod counts when it runs, and not when it has its node."""
    asked: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    on_bound: Callable[[str], None] = lambda name: None
    _head: bytes = b""
    _chunks: ChunkDecoder | None = None
    _rest: bytes = b""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, data: bytes) -> None:
        """What the watch sends: a head, then lines of JSON in chunks that may end within a line."""
        now = time.perf_counter()
        if self._chunks is None:
            self._head += data
            _, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._chunks = ChunkDecoder()
        *lines, self._rest = (self._rest + self._chunks.feed(data)).split(b"\n")
        sign = b'"phase":"Running"' if self.runs else b'"nodeName":"'
        for line in lines:
            if line.startswith(b'{"type":"MODIFIED"') and sign in line:
                pod = _EVENT.decode(line).object
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                counts = pod.status.phase == "Running" if self.runs else pod.spec.node
                if counts and name not in self.bound:
                    self.bound[name] = now
                    self._news.set()
                    self.on_bound(name)

    async def reach(self, count: int, seconds: float, stall: float = PREPARATION_STALL) -> bool:
        """Wait until so many pods are bound; False when that takes too long or stops."""
        deadline = time.perf_counter() + seconds
        while len(self.bound) < count:
            self._news.clear()
            try:
                patience = min(stall, deadline - time.perf_counter())
                await asyncio.wait_for(self._news.wait(), patience)
            except TimeoutError:
                return False
        return True


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Load:
    """A cluster under load."""

    workload: Workload
    sender: Sender
    seen: PodTimes

    async def prepare(self) -> None:
        """Bring about what is there before the first measured pod."""
        work, send = self.workload, self.sender
        for name in (NAMESPACE, BEFORE):
            await send.send("POST", "/api/v1/namespaces", objects.namespace(name))
        if not work.agents:
            await self._create_nodes()
        expressions = {objects.CLASS: work.class_expression, objects.NO_CLASS: objects.NOBODYS}
        for name, expression in expressions.items():
            await send.send(
                "POST",
                "/apis/resource.k8s.io/v1/deviceclasses",
                objects.device_class(name, expression),
            )
        if work.template is not None:
            for space in (NAMESPACE, BEFORE):
                await send.send("POST", _claims(space, "resourceclaimtemplates"), work.template)
        for space in (NAMESPACE, BEFORE):
            await self._wait_for_service_account(space)
        await self._take_devices()
        await self._place_pods()

    async def _create_nodes(self) -> None:
        numbers = range(self.workload.nodes)
        await self.sender.for_each(map(objects.node, numbers), self._create_node)
        slices = itertools.chain.from_iterable(map(self.workload.slices, numbers))
        await self.sender.create_all("/apis/resource.k8s.io/v1/resourceslices", slices)

    async def _create_node(self, node: Document) -> None:
        """Create a node without taints; the admission of kube-apiserver adds one to each new node."""
        stored = msgspec.json.decode(await self.sender.send("POST", "/api/v1/nodes", node))
        while stored.get("spec", {}).pop("taints", None):
            path = f"/api/v1/nodes/{stored['metadata']['name']}"
            try:
                await self.sender.send("PUT", path, stored)
            except Refused as refused:
                if refused.code != CONFLICT:
                    raise
                stored = msgspec.json.decode(await self.sender.send("GET", path))

    async def _wait_for_service_account(self, space: str) -> None:
        """Wait until pods may be created; kube-apiserver needs the service account `default` for them."""
        deadline = time.perf_counter() + LONGEST_ACCOUNT_WAIT
        while True:
            try:
                await self.sender.send("POST", f"{_pods(space)}?dryRun=All", objects.pod("probe", "probe"))
                return
            except Refused as refused:
                about = str(refused).lower().replace(" ", "")
                if refused.code != FORBIDDEN or "serviceaccount" not in about:
                    raise
                if time.perf_counter() > deadline:
                    raise
            await asyncio.sleep(ACCOUNT_STEP)

    async def _take_devices(self) -> None:
        work = self.workload
        if not work.taken:
            return
        waiting = iter(enumerate(_taken_spots(work)))

        async def taker() -> None:
            for number, (node, devices) in waiting:
                asked = objects.claim(f"taken-{number}", len(devices))
                answer = await self.sender.send("POST", _claims(BEFORE), asked)
                stored = objects.allocated(msgspec.json.decode(answer), node, devices)
                await self.sender.send("PUT", f"{_claims(BEFORE)}/taken-{number}/status", stored)

        await asyncio.gather(*(taker() for _ in range(CREATORS)))

    async def _place_pods(self) -> None:
        work = self.workload
        if not work.placed:
            return
        await self._create_claims(BEFORE, work.placed)
        await self.sender.create_all(_pods(BEFORE), (self._pod(number) for number in range(work.placed)))
        if not await self.seen.reach(work.placed, LONGEST_PREPARATION):
            raise Refused(f"{len(self.seen.bound)} of {work.placed} pods were scheduled beforehand")

    async def _create_claims(self, space: str, pods: int) -> None:
        if self.workload.named:
            names = range(-(-pods // self.workload.named))
            await self.sender.create_all(
                _claims(space), (objects.claim(f"test-claim-{number}") for number in names)
            )

    def _pod(self, number: int) -> Document:
        share = self.workload.named
        return objects.pod(f"test-dra-{number}", f"test-claim-{number // share}" if share else "")

    async def _ask(self, number: int) -> None:
        self.seen.asked[f"{NAMESPACE}/test-dra-{number}"] = time.perf_counter()
        await self.sender.send("POST", _pods(NAMESPACE), self._pod(number))

    async def burst(self) -> Figures:
        """All pods as fast as they can be created."""
        work, before = self.workload, len(self.seen.bound)
        await self._create_claims(NAMESPACE, work.pods)
        waiting = iter(range(work.pods))

        async def creator() -> None:
            for number in waiting:
                await self._ask(number)

        begin = time.perf_counter()
        creating = asyncio.gather(*(creator() for _ in range(CREATORS)))
        whole = await self.seen.reach(before + work.pods, LONGEST_BURST)
        await creating
        return self._figures(
            begin, "" if whole else f"not all pods {'run' if work.agents else 'were scheduled'}"
        )

    async def steady(self, seconds: float) -> Figures:
        """A backlog of pods, each replaced when it has its node."""
        numbers = itertools.count()
        replacing: set[asyncio.Task[None]] = set()
        trouble: list[str] = []

        async def replace(name: str) -> None:
            await self.sender.send("DELETE", f"{_pods(NAMESPACE)}/{name}", _GONE)
            await self._ask(next(numbers))

        def ended(task: asyncio.Task[None]) -> None:
            replacing.discard(task)
            if not task.cancelled() and (broken := task.exception()) is not None:
                trouble.append(str(broken))

        def on_bound(name: str) -> None:
            task = asyncio.ensure_future(replace(name.partition("/")[2]))
            replacing.add(task)
            task.add_done_callback(ended)

        self.seen.on_bound = on_bound
        begin = time.perf_counter()
        await asyncio.gather(*(self._ask(next(numbers)) for _ in range(self.workload.backlog)))
        await asyncio.sleep(begin + seconds - time.perf_counter())
        self.seen.on_bound = lambda name: None
        figures = self._figures(begin, trouble[0] if trouble else "", time.perf_counter())
        await asyncio.gather(*replacing, return_exceptions=True)
        return figures

    def _figures(self, begin: float, trouble: str, end: float = 0.0) -> Figures:
        moments = [self.seen.bound[name] for name in self.seen.asked if name in self.seen.bound]
        waits = [
            self.seen.bound[name] - asked
            for name, asked in self.seen.asked.items()
            if name in self.seen.bound
        ]
        end = end or max(moments, default=time.perf_counter())
        found = samples(moments, begin, end)
        return Figures(len(moments), end - begin, found, tuple(waits), trouble=trouble)


def _taken_spots(work: Workload) -> list[tuple[int, tuple[str, ...]]]:
    """Claim after claim takes a node by chance, and there the devices that an allocator takes first."""
    chance, order = random.Random(SEED), work.spots()
    slots = [number for number in range(work.nodes) for _ in order]
    chance.shuffle(slots)
    held: Counter[int] = Counter()
    spots = []
    for node in slots[: work.taken]:
        spots.append((node, order[held[node]]))
        held[node] += 1
    return spots


def _claims(space: str, plural: str = "resourceclaims") -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{space}/{plural}"


def _pods(space: str) -> str:
    return f"/api/v1/namespaces/{space}/pods"


@asynccontextmanager
async def open_sender(address: Address) -> AsyncIterator[Sender]:
    """A sender with its connections."""
    wires: list[Wire] = []
    try:
        for _ in range(CREATORS):
            wires.append(await connect(address))
        yield Sender(wires, address.headers)
    finally:
        for wire in wires:
            wire.transport.close()


@asynccontextmanager
async def loading(workload: Workload, address: Address) -> AsyncIterator[Load]:
    """A load with its connections."""
    async with open_sender(address) as sender:
        watching = await connect(address)
        seen = PodTimes(workload.agents)
        watching.stream(packed("GET", "/api/v1/pods?watch=1", headers=address.headers), seen.take)
        try:
            yield Load(workload, sender, seen)
        finally:
            watching.transport.close()
