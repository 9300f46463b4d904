"""Lists and watches of the client: `python -m bench.client [ROUNDS]`.

A server in its own process sends prepared responses: a list of 5,000 claims in pages of 500, and 20,000
events on them. The figures are the processor time of this process, per object listed and per event that
reached the listeners of an informer with one index; wall-clock time also includes the server. "in process"
has no sockets, so what is left is decoding and storing. The floor is the cost of decoding the same lines into
plain dicts. Python's garbage collector scans all objects again and again while they become more; "rare gc"
lets it run less often, as a service with a large cache should.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import socket
import time
from typing import Any

import uvicorn

from dray.api.json_text import read_json, write_json
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.config.client_config import ClientConfig
from dray.client.informers.informer import Informer
from dray.client.transport import Transport
from dray.client.transports.http import HttpTransport
from tests.support.in_process_transport import InProcessTransport

CLAIMS, EVENTS, PAGE = 5_000, 20_000, 500
CHUNK = 64 * 1024
RARE = (50_000, 50, 100)


def claim(number: int, version: int) -> dict[str, Any]:
    """An allocated claim of a pod, as a scheduler and a controller write it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{number}", "uid": f"{number:032x}"}
    field = {
        "manager": "dray",
        "operation": "Update",
        "apiVersion": "resource.k8s.io/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:allocation": {}, "f:reservedFor": {f'k:{{"uid":"{number}"}}': {}}}},
        "subresource": "status",
    }
    wanted = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}
    taken = {
        "request": "gpu",
        "driver": "gpu.example.com",
        "pool": f"node-{number % 100}",
        "device": f"gpu-{number % 8}",
    }
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{number % 100}"]}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"claim-{number}",
            "namespace": f"team-{number % 20}",
            "uid": f"{number:08x}-0000-4000-8000-000000000000",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [owner],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "managedFields": [field],
        },
        "spec": {"devices": {"requests": [wanted]}},
        "status": {
            "allocation": {"devices": {"results": [taken]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{number}", "uid": f"{number:032x}"}],
        },
    }


class Prepared:
    """An ASGI application with prepared responses."""

    def __init__(self) -> None:
        self._pages = [self._page(start) for start in range(0, CLAIMS, PAGE)]
        self.events = b"".join(
            b'{"type":"MODIFIED","object":%s}\n' % write_json(claim(number % CLAIMS, CLAIMS + 1 + number))
            for number in range(EVENTS)
        )

    def _page(self, start: int) -> bytes:
        items = [claim(number, number + 1) for number in range(start, start + PAGE)]
        for item in items:
            del item["apiVersion"], item["kind"]
        more = str(start // PAGE + 1) if start + PAGE < CLAIMS else ""
        return write_json({"metadata": {"resourceVersion": str(CLAIMS), "continue": more}, "items": items})

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        query = scope["query_string"].decode()
        if scope["path"].endswith("/v1"):
            await self._whole(send, write_json({"resources": [{"name": "resourceclaims"}]}))
        elif "watch=true" in query:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for start in range(0, len(self.events), CHUNK):
                body = self.events[start : start + CHUNK]
                await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(3600)
        else:
            page = int(query.partition("continue=")[2] or 0)
            await self._whole(send, self._pages[page])

    async def _whole(self, send: Any, body: bytes) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def serve(sock: socket.socket) -> None:
    # A watch never ends by itself, and the server would wait for it when it is stopped.
    config = uvicorn.Config(
        Prepared(),
        lifespan="off",
        log_config=None,
        http="httptools",
        loop="uvloop",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run([sock])


async def listed(client: Client) -> tuple[float, float]:
    """Microseconds of this process and of the clock per object of a list."""
    gc.collect()
    wall, used = time.perf_counter(), time.process_time()
    listing = await client.list(ResourceClaim)
    assert len(listing.items) == CLAIMS
    return (time.process_time() - used) / CLAIMS * 1e6, (time.perf_counter() - wall) / CLAIMS * 1e6


def pools(claim: ResourceClaim) -> list[str]:
    taken = claim.status.allocation
    return [result.pool for result in taken.devices.results] if taken is not None else []


async def watched(client: Client) -> tuple[float, float]:
    """Events per second of this process and of the clock, as far as listeners."""
    informer = Informer(client, ResourceClaim)
    informer.add_index("pool", pools)
    seen, begun, done = 0, [0.0, 0.0], asyncio.Event()

    def updated(_old: ResourceClaim, _new: ResourceClaim) -> None:
        nonlocal seen
        if seen == 0:
            begun[:] = time.perf_counter(), time.process_time()
        seen += 1
        if seen == EVENTS:
            done.set()

    informer.listen(updated=updated)
    gc.collect()
    run = asyncio.create_task(informer.run())
    await done.wait()
    wall, used = time.perf_counter() - begun[0], time.process_time() - begun[1]
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    return EVENTS / used, EVENTS / wall


async def measure(name: str, transport: Transport, rounds: int) -> None:
    client = Client(transport)
    lists = [await listed(client) for _ in range(rounds)]
    watches = [await watched(client) for _ in range(rounds)]
    used, wall = (min(column) for column in zip(*lists, strict=True))
    print(f"{name:22} list  {used:8.1f} us/object of this process, {wall:8.1f} by the clock")
    fast, clock = (max(column) for column in zip(*watches, strict=True))
    print(f"{name:22} watch {fast:8,.0f} events/s of this process, {clock:8,.0f} by the clock")
    await client.close()


def floor(prepared: Prepared, rounds: int) -> float:
    """Microseconds to make a plain dict of an event."""
    lines = prepared.events.splitlines()
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        used = time.process_time()
        kept = [read_json(line) for line in lines]
        best = min(best, time.process_time() - used)
        del kept
    return best / EVENTS * 1e6


async def main(rounds: int, address: str) -> None:
    prepared = Prepared()
    size = len(prepared.events) / EVENTS
    print(f"{CLAIMS:,} claims, {EVENTS:,} events of {size:,.0f} bytes, best of {rounds} rounds")
    for title, threshold in (("", gc.get_threshold()), (", rare gc", RARE)):
        gc.set_threshold(*threshold)
        print(f"{'floor' + title:22} dicts {floor(prepared, rounds):8.1f} us/event")
        await measure("http" + title, HttpTransport(ClientConfig(address)), rounds)
        await measure("in process" + title, InProcessTransport(prepared, "bench"), rounds)


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    options.add_argument("rounds", type=int, nargs="?", default=3, help="rounds, of which the best counts")
    rounds = options.parse_args().rounds
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    server.start()
    time.sleep(3)
    try:
        asyncio.run(main(rounds, f"http://127.0.0.1:{listening.getsockname()[1]}"))
    finally:
        server.terminate()
        server.join()
