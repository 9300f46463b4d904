"""Pods per second of a whole cluster, and of another one under the same load.

`python -m bench.scheduler [--full] [--calls] [--peer KUBECONFIG] [WORKLOAD ...]`. A workload is named by a
part of its name, for example `half_500nodes`, `agents`, or `large` for 5,000 nodes; without names a few of
them are measured, and with `--full` all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.agents.credentials import create_token_file
from bench.agents.process import running_agents
from bench.scheduler.calls import CallCounter
from bench.scheduler.cluster import ClusterOptions, running
from bench.scheduler.figures import Figures
from bench.scheduler.load import tell
from bench.scheduler.measuring import measure
from bench.scheduler.peer import Peer, PeerError, clean_up, open_peer, refuse_leftovers
from bench.scheduler.table import (
    Row,
    build_counts,
    build_row,
    render_calibration,
    render_counts,
    render_footer,
    render_head,
    render_row,
)
from bench.scheduler.workloads import EVERYTHING, NOT_BUILT, REFERENCE, SHORT, Workload
from dray.simulation.benchmarks.allocator_timing import Calibration

ROUNDS = 7
COUNTED_SECONDS = 4.0
"""The longest steady run whose calls are counted; counts do not need more."""
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    chosen = _parsed(arguments)
    try:
        return _run(chosen)
    except PeerError as broken:
        print(f"bench.scheduler: {broken}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("bench.scheduler: interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(chosen: argparse.Namespace) -> int:
    workloads = pick_workloads(chosen.workloads, full=chosen.full)
    peer = uvloop.run(open_peer(chosen.peer, chosen.peer_pids)) if chosen.peer else None
    calibration = Calibration()
    for _ in range(ROUNDS):
        calibration.run()
    slower = calibration.seconds / REFERENCE
    print(render_calibration(calibration.seconds))
    print(render_head())
    rows: list[Row] = []
    for workload in workloads:
        figures = _measure_dray(workload, chosen)
        beside = None
        if peer is not None and not workload.agents:
            beside = _measure_peer(workload, peer, chosen.seconds)
        rows.append(build_row(workload, figures, slower, beside))
        print(render_row(rows[-1]), flush=True)
    for name, why in NOT_BUILT if chosen.full else ():
        print(f"{name:58} not built: {why}")
    print(render_footer(calibration.seconds, "" if peer is None else peer.server))
    counts = _count_calls(workloads, chosen) if chosen.calls else {}
    if counts:
        print(render_counts(counts))
    if chosen.json:
        for row in rows:
            row["counted"] = counts.get(row["workload"])
        _write_json(chosen.json, calibration.seconds, peer, rows)
    return 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.scheduler", description=__doc__)
    parser.add_argument("workloads", nargs="*", help="parts of names; a few of them without")
    parser.add_argument("--full", action="store_true", help="all workloads")
    parser.add_argument(
        "--calls",
        action="store_true",
        help="count function calls and JSON texts per pod, too, in a run of its own for each workload",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time of a steady run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--processes", default="1", help="processes of the cluster: auto, 1, 2 or 3")
    parser.add_argument("--wrap", default="", help="a command that runs the cluster, such as a profiler")
    parser.add_argument(
        "--peer",
        type=Path,
        metavar="KUBECONFIG",
        help="another cluster that gets the same load in the same run",
    )
    parser.add_argument(
        "--peer-pids",
        type=_parse_pids,
        default=(),
        metavar="PID,PID",
        help="processes of the peer whose processor time and memory are measured",
    )
    chosen = parser.parse_args(arguments)
    if chosen.peer_pids and not chosen.peer:
        parser.error("--peer-pids needs --peer")
    return chosen


def _parse_pids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected for example `17,18`, got `{text}`") from None


def pick_workloads(parts: list[str], *, full: bool = False) -> list[Workload]:
    """Pick the workloads that have one of these parts in their names."""
    if full:
        return list(EVERYTHING)
    wanted = [part.lower() for part in parts or SHORT]
    found = [work for work in EVERYTHING if any(part in work.name.lower() for part in wanted)]
    if not found:
        raise SystemExit(f"no workload has `{parts[0]}` in its name")
    return found


def _measure_dray(workload: Workload, chosen: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        options = ClusterOptions(Path(name), tuple(chosen.wrap.split()), chosen.processes)
        if not workload.agents:
            with running(options) as cluster:
                return uvloop.run(measure(workload, cluster.address, chosen.seconds, cluster, counted=True))
        return _measure_with_agents(workload, options)


def _measure_with_agents(
    workload: Workload, options: ClusterOptions, calls: CallCounter | None = None
) -> Figures:
    folder = options.folder
    tokens = create_token_file(folder / "tokens", workload.nodes)
    with (
        running(replace(options, token_file=folder / "tokens")) as cluster,
        running_agents(cluster.kubeconfig, folder / "nodes", tokens) as agents,
    ):
        if calls is not None:
            calls.pid = cluster.process.pid
        used = agents.processor_seconds()
        found = uvloop.run(measure(workload, cluster.address, 0.0, cluster, counted=True, calls=calls))
        return replace(found, agents_processor_seconds=agents.processor_seconds() - used)


def _count_calls(workloads: list[Workload], chosen: argparse.Namespace) -> dict[str, Row]:
    """Count the function calls of each workload in a cluster with a profiler, by names of workloads."""
    found: dict[str, Row] = {}
    for workload in workloads:
        tell("counting calls:")
        with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
            options = ClusterOptions(Path(name), calls_file=Path(name) / "calls.json")
            assert options.calls_file is not None
            calls = CallCounter(options.calls_file)
            if workload.agents:
                figures = _measure_with_agents(workload, options, calls)
            else:
                with running(options) as cluster:
                    calls.pid = cluster.process.pid
                    seconds = min(chosen.seconds, COUNTED_SECONDS)
                    figures = uvloop.run(
                        measure(workload, cluster.address, seconds, counted=True, calls=calls)
                    )
        found[workload.name] = build_counts(figures)
    return found


def _measure_peer(workload: Workload, peer: Peer, seconds: float) -> Figures:
    """Measure the peer and delete what the load made there, whatever ends the load."""
    uvloop.run(refuse_leftovers(peer))
    tell("the peer:")
    try:
        return uvloop.run(_measure_until_terminated(workload, peer, seconds))
    finally:
        tell(f"{workload.name}: deleting its objects on the peer")
        uvloop.run(clean_up(peer))


async def _measure_until_terminated(workload: Workload, peer: Peer, seconds: float) -> Figures:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await measure(workload, peer.address, seconds, peer.processes)


def _write_json(file: Path, calibration: float, peer: Peer | None, rows: list[Row]) -> None:
    content = {
        "calibration": calibration / REFERENCE,
        "calibration_seconds": {"here": calibration, "reference": REFERENCE},
        "peer": None if peer is None else peer.server,
        "rows": rows,
    }
    file.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
