"""R-19: every limit of the server is hit on purpose; the answer says so, and others are served meanwhile.

Theory of operation: each offence is a function that goes beyond one limit of a server with small limits, and
returns what it was told. While it does, a well-behaved client reads, and its slowest reads are kept.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
import yaml

from bench.lean import Address, Wire, connect, packed
from dray.api.json_text import write_json
from tests.faults.server.hosted import Hosted

MAPS = "/api/v1/namespaces/default/configmaps"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"

SMALL = {
    "max_body_bytes": 100_000,
    "max_object_bytes": 50_000,
    "max_header_bytes": 4_000,
    "max_headers": 40,
    "max_url_bytes": 2_000,
    "max_connections": 150,
    "request_seconds": 1.0,
    "idle_seconds": 60.0,
    "stalled_seconds": 1.0,
    "max_in_flight": 4,
    "max_queued": 20,
    "max_queued_per_user": 10,
    "queue_seconds": 1.0,
    "max_watches": 40,
    "max_watches_per_user": 30,
    "max_page": 5,
    "max_objects_per_namespace": 60,
}
"""Limits that are quickly reached."""


@dataclass(frozen=True)
class Told:
    """What an offender got: codes, and the text of the last refusal."""

    codes: frozenset[int]
    words: str


Offence = Callable[[Address], Awaitable[Told]]


async def _one(address: Address, *requests: bytes) -> Told:
    wire = await connect(address)
    codes, words = set(), ""
    try:
        for request in requests:
            code, body = await asyncio.wait_for(wire.call(request), 10)
            codes.add(code)
            words = body.decode("utf-8", "replace") if code >= 400 or not words else words
    except ConnectionError:
        codes.add(0)
    finally:
        wire.transport.abort()
    return Told(frozenset(codes), words)


def _map(name: str, size: int = 1) -> bytes:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "x" * size}}
    return write_json(body)


async def body(address: Address) -> Told:
    return await _one(address, packed("POST", MAPS, _map("big", 200_000)))


async def huge_object(address: Address) -> Told:
    return await _one(address, packed("POST", MAPS, _map("large", 70_000)))


async def depth(address: Address) -> Told:
    nested = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":' + b"[" * 20_000
    return await _one(address, packed("POST", MAPS, nested))


async def header_bytes(address: Address) -> Told:
    header = b"\r\nx: " + b"x" * 9_000 + b"\r\n\r\n"
    return await _one(address, packed("GET", MAPS).replace(b"\r\n\r\n", header))


async def header_count(address: Address) -> Told:
    return await _one(address, packed("GET", MAPS).replace(b"\r\n\r\n", b"\r\nx: y" * 60 + b"\r\n\r\n"))


async def url(address: Address) -> Told:
    return await _one(address, packed("GET", f"{MAPS}?labelSelector={'a' * 4_000}"))


async def slow_request(address: Address) -> Told:
    return await _one(address, packed("POST", MAPS, _map("slow", 1000))[:-10])


async def connections(address: Address) -> Told:
    wires, refused = [], Told(frozenset(), "")
    try:
        for _ in range(200):
            wires.append(await asyncio.wait_for(connect(address), 10))
        refused = await _one(address, packed("GET", MAPS))
    except (ConnectionError, TimeoutError):
        refused = Told(frozenset({0}), "")
    finally:
        for wire in wires:
            wire.transport.abort()
    await asyncio.sleep(0.2)
    return refused


async def watches(address: Address) -> Told:
    wires: list[Wire] = []
    told = Told(frozenset(), "")
    try:
        for _ in range(30):
            wires.append(await connect(address))
            wires[-1].stream(packed("GET", f"{MAPS}?watch=1"), lambda data: None)
        await asyncio.sleep(0.3)
        told = await _one(address, packed("GET", f"{MAPS}?watch=1"))
    finally:
        for wire in wires:
            wire.transport.abort()
    return told


async def flood(address: Address) -> Told:
    """Many at once: some wait, some are refused."""
    wires = [await connect(address) for _ in range(60)]
    codes, words = set(), ""
    await wires[0].call(packed("POST", MAPS, _map("flood")))
    try:
        for round_ in range(5):
            puts = [packed("PUT", f"{MAPS}/flood", _map("flood", 60 * round_ + n + 2)) for n in range(60)]
            sent = [wire.call(put) for wire, put in zip(wires, puts, strict=True)]
            for code, answer in await asyncio.wait_for(asyncio.gather(*sent), 30):
                codes.add(code)
                words = answer.decode() if code == 429 else words
    finally:
        for wire in wires:
            wire.transport.abort()
    return Told(frozenset(codes), words)


async def page(address: Address) -> Told:
    wire = await connect(address)
    for number in range(8):
        await wire.call(packed("POST", MAPS, _map(f"page-{number}")))
    code, answer = await wire.call(packed("GET", f"{MAPS}?limit=1000"))
    wire.transport.abort()
    listed = json.loads(answer)
    words = f"{len(listed['items'])} items, continue: {bool(listed['metadata'].get('continue'))}"
    return Told(frozenset({code}), words)


async def crowded_namespace(address: Address) -> Told:
    path = "/api/v1/namespaces/kube-public/configmaps"
    return await _one(address, *(packed("POST", path, _map(f"crowd-{number}")) for number in range(80)))


async def costly_selector(address: Address) -> Told:
    lists = "[0,1,2,3,4,5,6,7,8,9]"
    cost = ".all(x, ".join([lists] * 9) + ".all(x, true" + ")" * 9
    selector = {"cel": {"expression": cost}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "costly"},
        "spec": {"selectors": [selector]},
    }
    return await _one(address, packed("POST", CLASSES, write_json(body)))


OFFENCES: dict[str, tuple[Offence, frozenset[int], str]] = {
    "body size": (body, frozenset({413}), "at most 100000 bytes"),
    "object size": (huge_object, frozenset({413}), "at most 50000 are stored"),
    "JSON depth": (depth, frozenset({400}), "nest"),
    "header size": (header_bytes, frozenset({431}), "more than 4000 bytes of head"),
    "header count": (header_count, frozenset({431}), "more than 40 headers"),
    "URL length": (url, frozenset({414}), "at most 2000 bytes"),
    "time to arrive": (slow_request, frozenset({408}), "must arrive within 1 seconds"),
    "connections": (connections, frozenset({0, 503}), ""),
    "watches": (watches, frozenset({429}), "30 watches open"),
    "requests at a time": (flood, frozenset({429}), "try again later"),
    "list page": (page, frozenset({200}), "5 items, continue: True"),
    "objects per namespace": (crowded_namespace, frozenset({403}), "has 60 configmaps, which is the limit"),
    "CEL cost": (costly_selector, frozenset({422}), "cost"),
}
"""What is exhausted: how, codes of which one must be answered, and words of the last refusal."""


READER = "system:serviceaccount:default:default"
"""A user of its own: limits count the requests of a caller, also those for users that it impersonates."""


@dataclass(frozen=True)
class Seen:
    """What a well-behaved client met: how long it waited, and how often it was not served."""

    took: tuple[float, ...] = ()
    strange: int = 0

    def late(self) -> float:
        ordered = sorted(self.took)
        return ordered[len(ordered) * 99 // 100] if ordered else 0.0


class Reader:
    """A well-behaved client in a process of its own, so that it does not wait for the offender's work."""

    def __init__(self, kubeconfig: Path) -> None:
        processes = multiprocessing.get_context("spawn")
        self._over, self._queue = processes.Event(), processes.Queue()
        arguments = (str(kubeconfig), self._over, self._queue)
        self._process = processes.Process(target=_read_until, args=arguments, daemon=True)
        self._process.start()
        self._queue.get(timeout=30)  # it reads now

    def tell(self) -> Seen:
        """Stop reading; returns the measurements."""
        self._over.set()
        took, strange = self._queue.get(timeout=60)
        self._process.join(30)
        return Seen(tuple(took), strange)


def _read_until(kubeconfig: str, over: Any, queue: Any) -> None:
    uvloop.run(_reading(Path(kubeconfig), over, queue))


async def _log_in_as_reader(kubeconfig: Path) -> tuple[Address, bytes]:
    """Let the reader read; returns the address without credentials, and the header with the token."""
    admin = await connect(Address.of_kubeconfig(kubeconfig))
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": READER}],
    }
    where = f"/apis/{group}/v1/clusterrolebindings"
    code, said = await admin.call(packed("POST", where, json.dumps(binding).encode()))
    assert code in {201, 409}, said
    account = b'{"metadata": {"name": "default"}}'
    code, said = await admin.call(packed("POST", "/api/v1/namespaces/default/serviceaccounts", account))
    assert code in {201, 409}, said
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    code, said = await admin.call(packed("POST", path, b'{"spec": {}}'))
    assert code == 201, said
    token = json.loads(said)["status"]["token"]
    config = yaml.safe_load(kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": token}
    reader = kubeconfig.with_name("reader.kubeconfig")
    reader.write_text(yaml.safe_dump(config), "utf-8")
    return Address.of_kubeconfig(reader), f"\r\nauthorization: Bearer {token}\r\n\r\n".encode()


async def _reading(kubeconfig: Path, over: Any, queue: Any) -> None:
    """Read periodically until stopped."""
    took, strange = [], 0
    address, login = await _log_in_as_reader(kubeconfig)
    wire = await connect(address)
    request = packed("GET", "/api/v1/namespaces/default").replace(b"\r\n\r\n", login)
    await wire.call(request)
    queue.put("reading")
    while not over.is_set():
        begun = time.perf_counter()
        try:
            code, _ = await asyncio.wait_for(wire.call(request), 10)
            strange += code != 200
        except (ConnectionError, TimeoutError):
            strange += 1
            wire = await connect(address)
        took.append(time.perf_counter() - begun)
        await asyncio.sleep(0.01)
    queue.put((took, strange))


@dataclass(frozen=True)
class Outcome:
    """One limit, hit."""

    what: str
    told: Told
    well: bool
    reader: Seen

    def __str__(self) -> str:
        verdict = "as it should" if self.well else f"WRONG: {self.told.words[:300]}"
        others = f"others: {len(self.reader.took)} reads, p99 {self.reader.late() * 1000:.0f} ms"
        return f"{self.what}: {sorted(self.told.codes)} {verdict}; {others}, {self.reader.strange} failed"


async def offend(server: Hosted, *offences: str) -> list[Outcome]:
    """Go beyond limits, one after the other, while one reader reads."""
    reader = await asyncio.to_thread(Reader, server.kubeconfig)
    told = [await OFFENCES[what][0](server.address()) for what in offences]
    await asyncio.sleep(0.05)
    seen = await asyncio.to_thread(reader.tell)
    return [
        Outcome(what, said, _is_well(what, said), seen) for what, said in zip(offences, told, strict=True)
    ]


def _is_well(what: str, told: Told) -> bool:
    _, codes, words = OFFENCES[what]
    sound = all(code < 500 or code == 503 for code in told.codes)
    return sound and bool(told.codes & codes) and words in told.words


async def calm(server: Hosted, seconds: float) -> float:
    """The p99 of a well-behaved client that is alone."""
    reader = await asyncio.to_thread(Reader, server.kubeconfig)
    await asyncio.sleep(seconds)
    return (await asyncio.to_thread(reader.tell)).late()
