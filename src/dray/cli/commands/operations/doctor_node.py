"""`dray doctor node`: checks the drivers and the files of claims on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.options import SecondsType, output_option
from dray.cli.input.server_connection import run_to_completion
from dray.cli.output.text import sanitize_text

if TYPE_CHECKING:
    from dray.node.inspection.findings import NodeFinding
    from dray.node.inspection.node_inspection import NodeObservation, NodePaths

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.command("node")
@click.option(
    "--kubelet-dir",
    type=_DIRECTORY,
    default="/var/lib/kubelet",
    show_default=True,
    help="The root directory of the kubelet.",
)
@click.option(
    "--cdi-dir",
    type=_DIRECTORY,
    multiple=True,
    help="A directory of CDI files; later ones take precedence.  [default: /etc/cdi, /var/run/cdi]",
)
@click.option("--watch", is_flag=True, help="Inspect again and again, and print what changes.")
@click.option(
    "--interval",
    type=SecondsType(),
    default="60s",
    show_default=True,
    help="The time between two inspections of --watch.",
)
@click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz at this address with --watch.  [default: not served]",
)
@output_option
def command(
    kubelet_dir: Path,
    cdi_dir: tuple[Path, ...],
    watch: bool,
    interval: float,
    metrics_address: str,
    output: str,
) -> int:
    """Check the drivers of this machine, their CDI files, and the prepared claims of its kubelet.

    Registration sockets are asked who listens there, CDI files are parsed, and both are compared with the
    checkpoint of the kubelet. Nothing is changed, and no API server is needed. Exit code 1 when something was
    found. deploy/components/node-tools runs it with `--watch` on every node.
    """
    from dray.node.inspection.node_inspection import NodePaths

    paths = NodePaths(kubelet_dir, cdi_dir) if cdi_dir else NodePaths(kubelet_dir)
    if watch:
        run_to_completion(_watch_node(paths, interval, metrics_address))
        click.echo("stopped", err=True)
        return EXIT_YES
    if metrics_address:
        raise click.UsageError("`--metrics-address` needs `--watch`")
    seen, findings = run_to_completion(_inspect_node(paths))
    if output == "json":
        from dray.manifests import to_json

        click.echo(to_json([_build_report(seen, findings)]), nl=False)
    else:
        for line in render_report(seen, findings):
            click.echo(sanitize_text(line))
    return EXIT_NO if findings else EXIT_YES


async def _inspect_node(paths: NodePaths) -> tuple[NodeObservation, Sequence[NodeFinding]]:
    from dray.clock import SystemClock
    from dray.node.inspection.node_inspection import find_problems, observe_node

    seen = await observe_node(paths, SystemClock().now().timestamp())
    return seen, find_problems(seen)


async def _watch_node(paths: NodePaths, interval: float, address: str) -> None:
    """Inspect until a stop signal; print each finding when it appears and when it has gone."""
    from dray.clock import SystemClock
    from dray.cluster.services.process_setup import install_stop_signals
    from dray.node.inspection.metrics import METRIC_DEFINITIONS, record_inspection
    from dray.tasks import wait_for_first
    from dray.telemetry.endpoint import serve_telemetry
    from dray.telemetry.metrics import MetricsRegistry

    stop, metrics = install_stop_signals(), MetricsRegistry(METRIC_DEFINITIONS)
    known: dict[NodeFinding, None] | None = None
    checks = {"inspection": lambda: "no inspection has ended yet" if known is None else None}
    async with serve_telemetry(metrics, checks, address=address or None) as served:
        if served:
            click.echo(f"metrics at http://{served}/metrics", err=True)
        while not stop.is_set():
            seen, findings = await _inspect_node(paths)
            record_inspection(metrics, seen, findings, SystemClock().now().timestamp())
            current = dict.fromkeys(findings)
            for line in _render_changes(known or {}, current):
                click.echo(sanitize_text(line))
            if known is None:
                click.echo(render_summary(seen, findings))
            known = current
            await wait_for_first(stop.wait(), asyncio.sleep(interval))


def _render_changes(before: dict[NodeFinding, None], after: dict[NodeFinding, None]) -> Iterator[str]:
    for finding in after:
        if finding not in before:
            yield from _render_finding(finding)
    for finding in before:
        if finding not in after:
            yield f"resolved: {finding.message}"


def render_report(seen: NodeObservation, findings: Sequence[NodeFinding]) -> Iterator[str]:
    """Render an inspection as text."""
    for finding in findings:
        yield from _render_finding(finding)
    yield render_summary(seen, findings)


def _render_finding(finding: NodeFinding) -> Iterator[str]:
    yield f"{finding.severity}: {finding.message}"
    if finding.hint:
        yield f"hint: {finding.hint}"


def render_summary(seen: NodeObservation, findings: Sequence[NodeFinding]) -> str:
    """Render what was looked at, in a line."""
    drivers = ", ".join(sorted(seen.drivers)) or "no driver"
    claims = "no checkpoint" if seen.claims is None else f"{len(seen.claims):,} prepared claims"
    devices = f"{len(seen.cdi_devices or {}):,} CDI devices"
    plural = "" if len(findings) == 1 else "s"
    outcome = f"{len(findings):,} finding{plural}" if findings else "nothing to complain about"
    return f"{drivers}; {claims}, {devices}: {outcome}"


def _build_report(seen: NodeObservation, findings: Sequence[NodeFinding]) -> dict[str, Any]:
    return {
        "drivers": sorted(seen.drivers),
        "claims": None if seen.claims is None else [claim.label for claim in seen.claims],
        "cdiDevices": sorted(seen.cdi_devices or {}),
        "findings": [
            {
                "check": each.check.value,
                "severity": each.severity.value,
                "message": each.message,
                "hint": each.hint,
            }
            for each in findings
        ],
    }
