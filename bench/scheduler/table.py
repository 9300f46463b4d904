"""The printed table, and the rows for the JSON file.

Two ratios are never mixed: `scaled` compares with figures of kube-scheduler that were recorded elsewhere and
scaled by the calibration loop, `peer` with another cluster that had the same load in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.scheduler.calls import Calls
from bench.scheduler.counts import Counts
from bench.scheduler.figures import Figures
from bench.scheduler.workloads import REFERENCE, Workload

Row = dict[str, Any]


def build_row(workload: Workload, figures: Figures, slower: float, peer: Figures | None = None) -> Row:
    """Build the row of a workload; `slower` is the factor of the calibration loop."""
    reference = None if workload.kubernetes is None else workload.kubernetes / slower
    row = {"workload": workload.name, **_describe_figures(figures)}
    row["kubernetes"] = reference
    row["scaled_ratio"] = None if not reference else figures.average / reference
    row["peer_ratio"] = None if peer is None or not peer.average else figures.average / peer.average
    row["peer"] = None if peer is None else _describe_figures(peer)
    return row


def _describe_figures(figures: Figures) -> Row:
    return {
        "average": figures.average,
        "p50": figures.sample(0.5),
        "samples": len(figures.samples),
        "wait_p50": figures.wait(0.5),
        "wait_p99": figures.wait(0.99),
        "processor_ms": figures.milliseconds_each,
        "megabytes": figures.megabytes,
        "per_pod": None if figures.counts is None else asdict(figures.counts.divide(figures.pods)),
        "seconds": figures.seconds,
        "agents_processor_ms": _divide(figures.agents_processor_seconds, figures.pods),
        "trouble": figures.trouble,
        "figures": asdict(figures) | {"waits": len(figures.waits)},
    }


def _divide(seconds: float | None, pods: int) -> float | None:
    return None if seconds is None or not pods else seconds / pods * 1000


def build_counts(figures: Figures) -> Row:
    """Build the counts per pod of a run in which calls were counted."""
    calls, counts = figures.calls or Calls(), figures.counts or Counts()
    return asdict(calls.divide(figures.pods)) | asdict(counts.divide(figures.pods)) | {"pods": figures.pods}


def render_counts(found: Mapping[str, Row]) -> str:
    """Render the table of counts per pod."""
    columns = ("calls", "encodes", "decodes", "writes", "object_writes", "commits", "audit_lines")
    head = "".join(f"{name.replace('_', ' '):>14}" for name in columns)
    lines = [
        "\ncounts per pod; each workload was run again for them, in one process and with a profiler, so no "
        "time is told",
        f"{'workload':58}{head}",
    ]
    for name, row in found.items():
        lines.append(
            f"{name:58}{row['calls']:>14,.0f}" + "".join(f"{row[each]:>14.1f}" for each in columns[1:])
        )
    return "\n".join(lines)


def render_head() -> str:
    """Render the headings."""
    return (
        f"{'workload':58}{'pods/s':>8}{'p50':>8}{'kube*':>7}{'scaled*':>8}{'peer':>7}"
        f"{'wait p50':>10}{'p99 ms':>8}{'cpu ms':>8}{'MB':>6}{'writes':>8}"
    )


def render_row(row: Row) -> str:
    """Render a workload: a line for dray and, where there is one, a line for the peer."""
    lines = [_render_line(row["workload"], row)]
    if row["peer"] is not None:
        lines.append(_render_line("  the peer, measured in this run", row["peer"]))
    return "\n".join(lines)


def _describe_agents(row: Row) -> str:
    cost = row["agents_processor_ms"]
    return "" if cost is None else f"  all run after {row['seconds']:.1f} s, agents {cost:.1f} ms each"


def _render_line(name: str, row: Row) -> str:
    writes = None if row["per_pod"] is None else row["per_pod"]["writes"]
    return (
        f"{name:58}{row['average']:>8.1f}{row['p50']:>8.1f}{_render(row.get('kubernetes'), 7)}"
        f"{_render(row.get('scaled_ratio'), 8)}{_render(row.get('peer_ratio'), 7)}"
        f"{row['wait_p50'] * 1000:>10.0f}{row['wait_p99'] * 1000:>8.0f}{_render(row['processor_ms'], 8, 2)}"
        f"{_render(row['megabytes'], 6, 0)}{_render(writes, 8, 2)}{_describe_agents(row)}  {row['trouble']}"
    ).rstrip()


def _render(value: float | None, width: int, places: int = 1) -> str:
    return " " * width if value is None else f"{value:>{width}.{places}f}"


def render_calibration(seconds: float) -> str:
    """Say with what `kube` and `scaled` compare."""
    return (
        f"calibration {seconds:.3f} s, reference {REFERENCE:.3f} s; kube and scaled: figures of "
        "kube-scheduler that were recorded elsewhere and scaled by this loop, not measured in this run"
    )


def render_footer(calibration: float, server: str = "") -> str:
    """Say what the ratios compare with; `server` is the address of the peer, empty without one."""
    lines = [
        "* kube, scaled: kube-scheduler as recorded elsewhere, scaled by the calibration loop "
        f"({calibration:.3f} s here, {REFERENCE:.3f} s there), and the ratio to that",
        "  (another machine, disk and version: an estimate; only `peer` is measured)",
    ]
    if server:
        lines.append(f"peer: the ratio to {server}, measured in this run")
    lines += [
        "writes: API writes per pod, those of the load among them; several writes in one transaction are one",
        "agents: pods count when they run, `wait` is from the create to that, and `cpu ms` is without agents",
    ]
    return "\n".join(lines)
