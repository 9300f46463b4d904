"""What one write costs the API server: `python -m bench.writes [--count N] [--profile NAME]`.

Theory of operation: the server runs in this process, over a durable store and with its audit log, and gets
the requests one after the other as from a component in the same process. Its work is told in numbers that do
not depend on the machine (calls of Python and C functions in the event loop, texts decoded and encoded, audit
lines), and in the time of the processor with all threads. A counted run is one of its own: counting takes
longer than what it counts.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec
import uvloop

from bench import serverobjects
from bench.writerequests import (
    TRANSACTIONS,
    WRITES,
    MeasuredWrite,
    Request,
    Target,
    build_transaction,
)
from dray.cluster.services.api_server import AUDIT_FILE, ServerProcessOptions, open_server
from dray.cluster.services.process_setup import freeze_garbage_collector

COUNTED: Final = 20
ROUNDS: Final = 5
"""Rounds of timed writes, of which the best counts."""


@dataclass(frozen=True)
class WriteCost:
    """What one write costs."""

    write: str
    calls: float
    decodes: float
    encodes: float
    audit_lines: float
    microseconds: float


SORTS: Final[dict[str, tuple[MeasuredWrite, bool]]] = {
    **{name: (write, False) for name, write in WRITES.items()},
    **{
        name if together else f"{name}, one by one": (write, together)
        for name, write in TRANSACTIONS.items()
        for together in (False, True)
    },
}
"""What is measured, and whether the requests of one write are sent as a transaction."""
_NO_NAME: Final = re.compile("[^a-z0-9]+")


class CallCounter:
    """Counts the calls of functions in this thread, and the texts that are decoded and encoded."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> CallCounter:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.counts["calls"] += 1
        elif event == "c_call":
            self.counts["calls"] += 1
            owner = getattr(argument, "__self__", None)
            if isinstance(owner, msgspec.json.Decoder):
                self.counts["decodes"] += 1
            elif isinstance(owner, msgspec.json.Encoder):
                self.counts["encodes"] += 1


class WriteMeasurement:
    """Measures one sort of write."""

    def __init__(self, target: Target, audit: Path, sort: str) -> None:
        self._target, self._audit, self._sort = target, audit, sort
        self._write, self._together = SORTS[sort]
        self._number = 0

    async def _prepare_requests(self, count: int) -> list[Request]:
        requests: list[Request] = []
        for _ in range(count):
            self._number += 1
            name = f"{_NO_NAME.sub('-', self._sort)}-{self._number}"
            parts = self._write.build(name, await self._write.prepare(self._target, name))
            requests += [build_transaction(parts)] if self._together else parts
        return requests

    async def _send_all(self, requests: list[Request]) -> None:
        for request in requests:
            await self._target.send(*request)

    async def measure(self, count: int) -> WriteCost:
        """Time and count the write; one round before that fills the caches."""
        await self._send_all(await self._prepare_requests(COUNTED))
        seconds = []
        for _ in range(ROUNDS):
            requests = await self._prepare_requests(count)
            begun = time.process_time()
            await self._send_all(requests)
            seconds.append((time.process_time() - begun) / count)
        requests = await self._prepare_requests(COUNTED)
        lines = self._count_audit_lines()
        with CallCounter() as counter:
            await self._send_all(requests)
        counts = {name: counter.counts[name] / COUNTED for name in ("calls", "decodes", "encodes")}
        lines = self._count_audit_lines() - lines
        return WriteCost(self._sort, **counts, audit_lines=lines / COUNTED, microseconds=min(seconds) * 1e6)

    async def profile(self, count: int) -> None:
        """Print where the time of the event loop goes."""
        await self._send_all(await self._prepare_requests(COUNTED))
        requests = await self._prepare_requests(count)
        profiler = cProfile.Profile()
        profiler.enable()
        await self._send_all(requests)
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(60)

    def _count_audit_lines(self) -> int:
        return self._audit.read_bytes().count(b"\n")


async def measure(sorts: list[str], count: int, *, profile: bool) -> list[WriteCost]:
    """Measure sorts of writes on a fresh server."""
    costs = []
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        directory = Path(folder) / "server"
        async with open_server(ServerProcessOptions(directory, port=0)) as server:
            target = Target(server.app)
            freeze_garbage_collector()  # as every service does
            await target.send("POST", serverobjects.CLASSES, json.loads(serverobjects.device_class()))
            await target.send("POST", serverobjects.NODES, json.loads(serverobjects.node(0)))
            for sort in sorts:
                work = WriteMeasurement(target, directory / AUDIT_FILE, sort)
                if profile:
                    await work.profile(count)
                    continue
                costs.append(cost := await work.measure(count))
                print(
                    f"{cost.write:36}{cost.calls:>8.0f}{cost.decodes:>9.1f}{cost.encodes:>9.1f}"
                    f"{cost.audit_lines:>13.1f}{cost.microseconds:>14.0f}",
                    flush=True,
                )
    return costs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.writes", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="writes in a round")
    parser.add_argument("--only", choices=sorted(SORTS), help="one sort of write")
    parser.add_argument("--profile", action="store_true", help="print a profile instead of the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    chosen = parser.parse_args(arguments)
    sorts = [chosen.only] if chosen.only else list(SORTS)
    if not chosen.profile:
        print(f"{'':36}{'calls':>8}{'decodes':>9}{'encodes':>9}{'audit lines':>13}{'processor µs':>14}")
    costs = uvloop.run(measure(sorts, chosen.count, profile=chosen.profile))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
