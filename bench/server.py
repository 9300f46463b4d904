"""The API server over TLS, with a durable store: `python -m bench.server [--seconds N] [--small]`.

The server and its clients are processes of their own. Clients are minimal (`bench.lean`) and share one
processor, so that the server has the other.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.processes import Measured

CLIENTS = (1, 8, 64)
AIMS = "aims: 2,000 writes and 5,000 reads per second, p99 below 50 ms with 8 clients, below 600 MB"


class Running(Measured):
    """A server that was started."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "admin.kubeconfig"
        self.kubeconfig.unlink(missing_ok=True)
        begun = time.perf_counter()
        command = [sys.executable, "-m", "dray.cli", "server", "--data-dir", str(folder), "--port", "0"]
        self.log = (folder.parent / "server.log").open("ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while not self.kubeconfig.exists():
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended; see {self.log.name}")
            time.sleep(0.005)
        self.seconds_to_start = time.perf_counter() - begun

    def stop(self) -> None:
        super().stop()
        self.log.close()


class Worker:
    """A process with clients."""

    def __init__(self, server: Running, work: str, clients: int, **job: Any) -> None:
        job |= {"kubeconfig": str(server.kubeconfig), "work": work, "clients": clients}
        command = [sys.executable, "-m", "bench.serverload", json.dumps(job)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read("ready")

    def read(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise SystemExit(f"a client said {line!r}, not {word!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.wait(30)
        return dict(json.loads(line))


def done(server: Running, work: str, clients: int, **job: Any) -> dict[str, Any]:
    worker = Worker(server, work, clients, **job)
    worker.go()
    return worker.result()


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    server = Running(folder)
    try:
        yield server
    finally:
        server.stop()


def part(values: list[float], share: float) -> float:
    """A percentile, in milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else float("nan")


def measure_loads(server: Running, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Creates, reads and status updates with few and many clients; the best of a few rounds each."""
    done(server, "filled", 1, sort="classes", **{"from": 0, "to": 1})
    done(server, "filled", 8, sort="claims", **{"from": 0, "to": 64})
    print(f"{'':10}{'clients':>8}{'per second':>12}{'p50 ms':>9}{'p99 ms':>9}{'server µs':>11}  answers")
    rows = []
    for load in ("creates", "reads", "statuses"):
        for clients in CLIENTS:
            found = [_load(server, load, clients, seconds, turn) for turn in range(rounds)]
            row = max(found, key=lambda each: float(each["rate"]))
            rows.append(row)
            print(
                f"{load:10}{clients:>8}{row['rate']:>12,.0f}{row['p50']:>9.2f}{row['p99']:>9.2f}"
                f"{row['server_us']:>11.0f}  {row['codes']}"
            )
    return rows


def _load(server: Running, load: str, clients: int, seconds: float, turn: int) -> dict[str, Any]:
    before = server.processor_seconds()
    job = {"load": load, "seconds": seconds, "run": f"{load}{clients}-{turn}", "held": 64, "first": 0}
    result = done(server, "timed", clients, **job)
    used = server.processor_seconds() - before
    took = result["took"]
    return {
        "load": load,
        "clients": clients,
        "rate": len(took) / result["seconds"],
        "p50": part(took, 0.5),
        "p99": part(took, 0.99),
        "server_us": used / max(1, len(took)) * 1e6,
        "codes": result["codes"],
    }


def measure_crowd(server: Running, watchers: int, writes: int) -> dict[str, Any]:
    """How long after a write its event is with each of many watchers."""
    body = done(server, "stamped", 1, run="warm", count=1, pause=0)
    assert body["codes"].get("201"), body
    watching = Worker(server, "watched", watchers, after=0, settle=3, mark="s-crowd-")
    watching.go()
    watching.read("watching")
    before = server.megabytes()
    written = done(server, "stamped", 1, run="crowd", count=writes, pause=0.2)
    time.sleep(2)
    watching.go()
    result = watching.result()
    delays = [delay for delay in result["delays"] if delay < 60]
    expected = watchers * writes
    row = {
        "watchers": watchers,
        "events": len(delays),
        "expected": expected,
        "p50": part(delays, 0.5),
        "p99": part(delays, 0.99),
        "lost": result["lost"],
        "megabytes": before,
        "codes": written["codes"],
    }
    print(
        f"\n{watchers} watchers, 5 writes per second: {row['events']:,} events, p50 {row['p50']:.1f} ms, "
        f"p99 {row['p99']:.1f} ms; server {before:.0f} MB"
    )
    return row


def measure_size(folder: Path, sizes: dict[str, int]) -> dict[str, Any]:
    """Memory and start-up with many objects."""
    row: dict[str, Any] = {"sizes": sizes}
    with running(folder) as server:
        for sort, count in sizes.items():
            result = done(server, "filled", 8, sort=sort, **{"from": 0, "to": count})
            row[sort] = {"seconds": result["seconds"], "codes": result["codes"]}
            rate = count / result["seconds"]
            print(f"published {count:,} {sort} in {result['seconds']:.1f} s ({rate:,.0f} per second)")
        row["megabytes"] = server.megabytes()
    with running(folder) as server:
        row["seconds_to_start"] = server.seconds_to_start
        row["megabytes_after_start"] = server.megabytes()
    print(
        f"memory {row['megabytes']:.0f} MB after writing, {row['megabytes_after_start']:.0f} MB after a "
        f"start of {row['seconds_to_start']:.2f} s"
    )
    return row


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.server", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="time of a round of a load")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a load, of which the best counts")
    parser.add_argument("--small", action="store_true", help="a tenth of the objects and watchers")
    parser.add_argument("--only", choices=["loads", "crowd", "size"])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    chosen = parser.parse_args(arguments)
    scale = 10 if chosen.small else 1
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        if chosen.only in (None, "loads"):
            with running(Path(name) / "loads") as server:
                print(f"empty server: {server.megabytes():.0f} MB, start {server.seconds_to_start:.2f} s\n")
                figures["loads"] = measure_loads(server, chosen.seconds, chosen.rounds)
        if chosen.only in (None, "crowd"):
            with running(Path(name) / "crowd") as server:
                done(server, "filled", 1, sort="classes", **{"from": 0, "to": 1})
                figures["crowd"] = measure_crowd(server, 1000 // scale, 25)
        if chosen.only in (None, "size"):
            sizes = {"nodes": 5000 // scale, "slices": 5000 // scale, "claims": 20_000 // scale}
            figures["size"] = measure_size(Path(name) / "size", sizes)
    print(AIMS)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
