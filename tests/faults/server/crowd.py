"""R-06: many watchers, some of which stop reading; memory stays bounded and the others do not notice.

Theory of operation: all watchers see small, stamped objects; those that will stop reading also see heavy
ones, so that what waits for them soon fills every buffer on the way. The same writes are made twice, first
while everybody reads, then while some have stopped. The server is a process of its own, so its memory is its
own.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.lean import Address, Wire, connect, packed
from dray.api.json_text import write_json
from tests.faults.server.hosted import Hosted

SMALL = "/api/v1/namespaces/default/configmaps"
HEAVY = "/api/v1/namespaces/kube-public/configmaps"
EVERYWHERE = "/api/v1/configmaps"
STALLED = 1.0
"""The limit `stalled_seconds` of the servers here."""
_STAMP = re.compile(rb'"stamp":"(\d+)"')


@dataclass
class Watcher:
    """One watch, and what came of it."""

    wire: Wire
    delays: list[float] = field(default_factory=list)
    rest: bytes = b""
    error: str = ""

    def take(self, data: bytes) -> None:
        now = time.monotonic_ns()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            stamp = _STAMP.search(line)
            if stamp:
                self.delays.append((now - int(stamp.group(1))) / 1e9)
            elif b'"type":"ERROR"' in line:
                self.error = line.decode("utf-8", "replace")[:300]


@dataclass
class Crowd:
    """What was seen."""

    watchers: int
    stopped: int
    baseline: float = 0.0
    beside: float = 0.0
    before: float = 0.0
    peak: float = 0.0
    cut: int = 0
    lost: int = 0
    missing: int = 0
    """Events that readers did not get."""

    def __str__(self) -> str:
        return (
            f"{self.watchers} watchers, {self.stopped} stopped reading: "
            f"p99 {self.baseline * 1000:.0f} ms with all reading, "
            f"{self.beside * 1000:.0f} ms beside stopped ones; {self.cut} of {self.stopped} cut off, "
            f"{self.lost} others lost, {self.missing} events missing; "
            f"memory {self.before:.0f} MB before, {self.peak:.0f} MB at most"
        )


async def campaign(server: Hosted, watchers: int, stopped: int, writes: int, heavy: int) -> Crowd:
    """Watch, write, stop reading, write again."""
    found = Crowd(watchers, stopped)
    address = server.address()
    writer = await connect(address)
    readers = [await _watching(address, SMALL) for _ in range(watchers - stopped)]
    stopping = [await _watching(address, EVERYWHERE) for _ in range(stopped)]
    await asyncio.sleep(0.5)
    found.before = server.megabytes()
    found.baseline = _late(await _written(writer, readers, writes, heavy, "a"))
    for watcher in stopping:
        watcher.wire.transport.pause_reading()
    second = await _written(writer, readers, writes, heavy, "b")
    found.beside = _late(second)
    found.missing = writes * len(readers) - len(second)
    found.cut = await _cut(stopping)
    found.lost = sum(watcher.wire.lost or bool(watcher.error) for watcher in readers)
    found.peak = server.megabytes("VmHWM")
    for watcher in (*readers, *stopping):
        watcher.wire.transport.abort()
    writer.transport.abort()
    return found


async def _watching(address: Address, path: str) -> Watcher:
    """Watch with a small buffer of one's own, so that who does not read is soon noticed."""
    loop, sock = asyncio.get_running_loop(), socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    sock.setblocking(False)
    await loop.sock_connect(sock, (address.host, address.port))
    _, wire = await loop.create_connection(Wire, sock=sock, ssl=address.tls, server_hostname=address.host)
    watcher = Watcher(wire)
    wire.stream(packed("GET", f"{path}?watch=1"), watcher.take)
    return watcher


async def _written(writer: Wire, readers: list[Watcher], writes: int, heavy: int, run: str) -> list[float]:
    """Write small objects among heavy ones; the delays with which the readers saw the small ones."""
    for watcher in readers:
        watcher.delays.clear()
    for number in range(writes):
        await _heavy(writer, f"{number}{run}" * (heavy // len(f"{number}{run}")))
        await _create(writer, SMALL, f"{run}-{number}", {"stamp": str(time.monotonic_ns())})
        await asyncio.sleep(0.02)
    await _until(lambda: all(len(watcher.delays) >= writes for watcher in readers), 20)
    return [delay for watcher in readers for delay in watcher.delays]


async def _create(writer: Wire, path: str, name: str, content: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": content}
    code, answer = await writer.call(packed("POST", path, write_json(body)))
    assert code == 201, answer


async def _heavy(writer: Wire, text: str) -> None:
    """Give one heavy object another content; only what is on its way takes memory."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "heavy"}, "data": {"x": text}}
    code, answer = await writer.call(packed("PUT", f"{HEAVY}/heavy", write_json(body)))
    if code == 404:
        code, answer = await writer.call(packed("POST", HEAVY, write_json(body)))
    assert code in (200, 201), answer


async def _cut(stopping: list[Watcher]) -> int:
    """Begin to read again, and see who was cut off: by an error in the stream, or a closed connection."""
    await asyncio.sleep(STALLED + 0.5)
    for watcher in stopping:
        if not watcher.wire.transport.is_closing():
            watcher.wire.transport.resume_reading()
    await _until(lambda: all(watcher.wire.lost or watcher.error for watcher in stopping), 10)
    return sum(watcher.wire.lost or bool(watcher.error) for watcher in stopping)


async def _until(is_so: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        await asyncio.sleep(0.05)


def _late(delays: list[float]) -> float:
    ordered = sorted(delays)
    return ordered[len(ordered) * 99 // 100] if ordered else float("inf")
