"""A process that puts load on a server: `python -m bench.serverload JOB`, with a job as JSON.

It connects, prints `ready`, waits for a line, works, and prints its results as JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

from bench import serverobjects as objects
from bench.lean import Address, Wire, connect, packed
from dray.api.json_text import write_json

Job = dict[str, Any]
Step = Callable[[Wire], Awaitable[int]]
"""One measured operation; the code it was answered with."""

_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


def creates(job: Job, client: int) -> Iterator[Step]:
    """Claims with names nobody has."""
    number = 0
    while True:
        number += 1
        name = f"c-{job['run']}-{client}-{number}"
        request = packed("POST", objects.CLAIMS, objects.claim(name))

        async def step(wire: Wire, request: bytes = request) -> int:
            return (await wire.call(request))[0]

        yield step


def reads(job: Job, client: int) -> Iterator[Step]:
    """Claims that are there."""
    number = client
    while True:
        number += 7
        request = packed("GET", f"{objects.CLAIMS}/held-{number % job['held']}")

        async def step(wire: Wire, request: bytes = request) -> int:
            return (await wire.call(request))[0]

        yield step


def statuses(job: Job, client: int) -> Iterator[Step]:
    """A claim of one's own gets a device and loses it again."""
    name, version, on = f"held-{client}", "", False
    path = f"{objects.CLAIMS}/{name}"

    async def step(wire: Wire) -> int:
        nonlocal version, on
        version = version or _version((await wire.call(packed("GET", path)))[1])
        body = objects.allocated(name, version, None if on else client)
        code, answer = await wire.call(packed("PUT", f"{path}/status", body))
        version, on = _version(answer), not on
        return code

    while True:
        yield step


def _version(body: bytes) -> str:
    found = _VERSION.search(body)
    if found is None:
        raise ValueError(f"no resourceVersion in {body[:300]!r}")
    return found.group(1).decode()


LOADS: dict[str, Callable[[Job, int], Iterator[Step]]] = {
    "creates": creates,
    "reads": reads,
    "statuses": statuses,
}


async def timed(job: Job, wires: list[Wire]) -> dict[str, Any]:
    """Every client does one thing after the other until the time is over."""
    took: list[float] = []
    codes: dict[int, int] = {}
    end = time.perf_counter() + job["seconds"]

    async def client(number: int, wire: Wire) -> None:
        steps = LOADS[job["load"]](job, job["first"] + number)
        while (begun := time.perf_counter()) < end:
            code = await next(steps)(wire)
            took.append(time.perf_counter() - begun)
            codes[code] = codes.get(code, 0) + 1

    begun = time.perf_counter()
    await asyncio.gather(*(client(number, wire) for number, wire in enumerate(wires)))
    return {"seconds": time.perf_counter() - begun, "took": took, "codes": codes}


async def filled(job: Job, wires: list[Wire]) -> dict[str, Any]:
    """Create objects of a sort by number, until all are there."""
    path, make = {
        "nodes": (objects.NODES, objects.node),
        "slices": (objects.SLICES, objects.slice_of),
        "claims": (objects.CLAIMS, lambda number: objects.claim(f"held-{number}")),
        "classes": (objects.CLASSES, lambda number: objects.device_class()),
    }[job["sort"]]
    numbers = iter(range(job["from"], job["to"]))
    codes: dict[int, int] = {}

    async def client(wire: Wire) -> None:
        for number in numbers:
            code, body = await wire.call(packed("POST", path, make(number)))
            codes[code] = codes.get(code, 0) + 1
            if code >= 400 and codes[code] == 1:
                print(body.decode(), file=sys.stderr)

    begun = time.perf_counter()
    await asyncio.gather(*map(client, wires))
    return {"seconds": time.perf_counter() - begun, "codes": codes}


_STAMP = re.compile(rb'"stamp":"(\d+)"')


async def watched(job: Job, wires: list[Wire]) -> dict[str, Any]:
    """Watch claims on every connection; how long after its writing each event came."""
    delays: list[float] = []

    def taker() -> Callable[[bytes], None]:
        rest = b""

        def take(data: bytes) -> None:
            nonlocal rest
            now = time.monotonic_ns()
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                stamp = _STAMP.search(line) if job["mark"].encode() in line else None
                if stamp:
                    delays.append((now - int(stamp.group(1))) / 1e9)

        return take

    request = packed("GET", f"{objects.CLAIMS}?watch=1&resourceVersion={job['after']}")
    for wire in wires:
        wire.stream(request, taker())
    await asyncio.sleep(job["settle"])
    print("watching", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return {"delays": delays, "lost": sum(wire.lost for wire in wires)}


async def stamped(job: Job, wires: list[Wire]) -> dict[str, Any]:
    """Write claims that say when they were written, at a steady rate."""
    codes: dict[int, int] = {}
    for number in range(job["count"]):
        document = objects.claim_document(f"s-{job['run']}-{number}")
        document["metadata"]["annotations"] = {"stamp": str(time.monotonic_ns())}
        code, _ = await wires[0].call(packed("POST", objects.CLAIMS, write_json(document)))
        codes[code] = codes.get(code, 0) + 1
        await asyncio.sleep(job["pause"])
    return {"codes": codes}


async def main(job: Job) -> None:
    address = Address.of_kubeconfig(Path(job["kubeconfig"]))
    wires = []
    for _ in range(job["clients"]):
        wires.append(await connect(address))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    work = {"timed": timed, "filled": filled, "watched": watched, "stamped": stamped}[job["work"]]
    print(json.dumps(await work(job, wires)), flush=True)


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
