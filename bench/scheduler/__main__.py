"""`python -m bench.scheduler [--seconds N] [--json FILE] [WORKLOAD ...]`: pods per second of a whole cluster.

A workload is named by a part of its name, for example `half_500nodes`, or `large` for 5,000 nodes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from bench.lean import Address
from bench.scheduler.cluster import Cluster, running
from bench.scheduler.figures import Figures
from bench.scheduler.load import Refused, loading, tell
from bench.scheduler.workloads import LARGE, NOT_BUILT, REFERENCE, WORKLOADS, Workload
from dray.simulation.benchmarks.allocator_timing import Calibration

ROUNDS = 7


def main(arguments: list[str] | None = None) -> int:
    chosen = _parsed(arguments)
    calibration = Calibration()
    for _ in range(ROUNDS):
        calibration.run()
    slower = calibration.seconds / REFERENCE
    print(f"calibration {calibration.seconds:.3f} s, reference {REFERENCE:.3f} s")
    rows = []
    _print_head()
    for workload in _picked(chosen.workloads):
        figures = _measured(workload, chosen)
        rows.append(_row(workload, figures, slower))
        _print_row(rows[-1])
    for name, why in NOT_BUILT if not chosen.workloads else ():
        print(f"{name:58} not built: {why}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"calibration": slower, "rows": rows}, indent=2) + "\n", "utf-8")
    return 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.scheduler", description=__doc__)
    parser.add_argument("workloads", nargs="*", help="parts of names; all of them without")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of a steady run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--wrap", default="", help="a command that runs the cluster, such as a profiler")
    return parser.parse_args(arguments)


def _picked(parts: list[str]) -> list[Workload]:
    if not parts:
        return [*WORKLOADS, LARGE]
    found = [work for work in (*WORKLOADS, LARGE) if any(part.lower() in work.name.lower() for part in parts)]
    if not found:
        raise SystemExit(f"no workload has `{parts[0]}` in its name")
    return found


def _measured(workload: Workload, chosen: argparse.Namespace) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="dray-bench-") as name,
        running(Path(name), tuple(chosen.wrap.split())) as cluster,
    ):
        return uvloop.run(_run(workload, cluster, chosen.seconds))


async def _run(workload: Workload, cluster: Cluster, seconds: float) -> Figures:
    tell(f"{workload.name}: preparing")
    async with loading(workload, Address.of_kubeconfig(cluster.kubeconfig)) as load:
        try:
            await load.prepare()
        except Refused as refused:
            return Figures(0, 0.0, (), (), trouble=str(refused))
        tell(f"{workload.name}: measuring")
        before = cluster.processor_seconds()
        found = await load.steady(seconds) if workload.is_steady else await load.burst()
        used = cluster.processor_seconds() - before
        return Figures(
            found.pods,
            found.seconds,
            found.samples,
            found.waits,
            cluster.megabytes(),
            used,
            found.trouble,
        )


def _row(workload: Workload, figures: Figures, slower: float) -> dict[str, Any]:
    reference = None if workload.kubernetes is None else workload.kubernetes / slower
    return {
        "workload": workload.name,
        "average": figures.average,
        "p50": figures.sample(0.5),
        "samples": len(figures.samples),
        "kubernetes": reference,
        "ratio": None if not reference else figures.average / reference,
        "wait_p50": figures.wait(0.5),
        "wait_p99": figures.wait(0.99),
        "processor_ms": figures.milliseconds_each,
        "megabytes": figures.megabytes,
        "trouble": figures.trouble,
        "figures": asdict(figures) | {"waits": len(figures.waits)},
    }


def _print_head() -> None:
    print(
        f"{'workload':58}{'pods/s':>8}{'p50':>8}{'kube':>7}{'ratio':>7}"
        f"{'wait p50':>10}{'p99 ms':>8}{'cpu ms':>8}{'MB':>6}"
    )


def _print_row(row: dict[str, Any]) -> None:
    kubernetes = "" if row["kubernetes"] is None else f"{row['kubernetes']:.1f}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f}"
    print(
        f"{row['workload']:58}{row['average']:>8.1f}{row['p50']:>8.1f}{kubernetes:>7}{ratio:>7}"
        f"{row['wait_p50'] * 1000:>10.0f}{row['wait_p99'] * 1000:>8.0f}{row['processor_ms']:>8.2f}"
        f"{row['megabytes']:>6.0f}  {row['trouble']}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
