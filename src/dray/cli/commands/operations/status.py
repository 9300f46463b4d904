"""`dray status`: what runs where, and which devices are used."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from dray.cli.exit_codes import EXIT_YES
from dray.cli.input.server_connection import ServerTarget, connect_to_server, server_options
from dray.cli.output.tables import COLUMN_GAP, render_table
from dray.cli.output.text import print_message, sanitize_line

if TYPE_CHECKING:
    from dray.cluster.live.overview import ClusterOverview, NodeOverview, PodOverview
    from dray.cluster.live.snapshot import LiveSnapshot

_CLEAR_SCREEN = "\x1b[H\x1b[2J"
_MIN_REASON_CHARS = 48
"""Half as many characters of a reason as are shown where nobody knows how many fit."""
_PAUSE_SECONDS = 1.0
_RUNNING_STATES = ("running", "not ready", "starting")


@click.command("status")
@server_options
@click.option("-w", "--watch", is_flag=True, help="Print the status again whenever it changes, until Ctrl-C.")
@click.option("-n", "--namespace", metavar="NAME", help="Show only the pods of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the pods of all namespaces, as by default.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Text for people (wide: with every pool and device), JSON or YAML for programs.",
)
def command(kubeconfig: str, context: str, **chosen: Any) -> int:
    """Show the nodes of a cluster with their pods and devices, and the pods that wait.

    Works with any Kubernetes API server, and needs no more rights than to read (role `dray:viewer`); what may
    not be read is named, and the rest is shown. `dray explain pod/NAME` explains why a pod waits, `dray free`
    shows what is left.
    """
    options = _Options(**chosen)
    if options.namespace and options.all_namespaces:
        raise click.UsageError("either one namespace (`-n`) or all of them (`-A`)")
    with suppress(KeyboardInterrupt):
        asyncio.run(_run_status(ServerTarget(kubeconfig, context), options))
    return EXIT_YES


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

    watch: bool
    output: str
    namespace: str | None
    all_namespaces: bool


async def _run_status(server: ServerTarget, options: _Options) -> None:
    from dray.cli.input.live_cluster import LiveInput, get_context_namespace, require_pods
    from dray.client.rest_client import CALL_ERRORS
    from dray.cluster.live import snapshot

    current = get_context_namespace(server)
    async with connect_to_server(server.kubeconfig, server.context) as (client, _):
        before, is_reported = None, False
        remarks: tuple[str, ...] = ()
        while True:
            try:
                seen = await snapshot.read_snapshot(client, [options.namespace or current])
            except CALL_ERRORS as error:
                if before is None:
                    raise
                # With --watch, a server that is away is waited for.
                if not is_reported:
                    click.echo(sanitize_line(f"the server does not answer, still trying: {error}"), err=True)
                is_reported = True
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            is_reported = False
            require_pods(LiveInput(seen, current), options.namespace)
            if seen.bundle.remarks != remarks:
                remarks = seen.bundle.remarks
                for remark in remarks:
                    print_message(remark)
            now = _build_overview(seen, options.namespace)
            if now != before:
                _print_overview(now, options.output, again=before is not None)
            before = now
            if not options.watch:
                return
            await asyncio.sleep(_PAUSE_SECONDS)


def _build_overview(seen: LiveSnapshot, namespace: str | None) -> ClusterOverview:
    from dray.api.core import Node
    from dray.cluster.live.overview import build_overview

    bundle = seen.bundle
    pods = [pod for pod in bundle.pods if namespace in (None, pod.metadata.namespace)]
    nodes = bundle.nodes if seen.is_readable(Node) else None
    return build_overview(nodes, pods, bundle.claims, bundle.slices)


def _print_overview(now: ClusterOverview, output: str, *, again: bool) -> None:
    if output in ("json", "yaml"):
        from dataclasses import asdict

        from dray.manifests import to_json, to_yaml

        written = to_json([asdict(now)]) if output == "json" else to_yaml([asdict(now)])
        click.echo(f"---\n{written}" if again and output == "yaml" else written, nl=False)
        return
    if again and sys.stdout.isatty():
        click.echo(_CLEAR_SCREEN, nl=False)
    wide = output == "wide"
    for line in render_overview(now, shutil.get_terminal_size((0, 0)).columns, wide=wide):
        click.echo(line)


def render_overview(now: ClusterOverview, width: int = 0, *, wide: bool = False) -> Iterator[str]:
    """Render a cluster as text: nodes, pods, and pods that wait; it fits `width`, if that is known.

    Wide text names every pool and device, however long its lines get.
    """
    if now.nodes:
        yield from _render_wide_nodes(now.nodes) if wide else _render_nodes(now.nodes, width)
        yield from _render_node_remarks(now.nodes)
    else:
        yield "there is no node yet"
    placed = [(node.name, pod) for node in now.nodes for pod in node.pods]
    if placed:
        yield ""
        yield from _render_placed(placed, wide=wide)
    if now.waiting:
        yield ""
        yield from _render_waiting(now.waiting, 0 if wide else width)


def _render_nodes(nodes: Sequence[NodeOverview], width: int) -> Iterator[str]:
    titles = ("node", "state", "pods", "devices")
    lines = list(render_table(titles, [row for node in nodes for row in _build_node_rows(node)]))
    if width and max(map(len, lines)) > width:
        rows = [row for node in nodes for row in _build_node_rows(node, together=False)]
        lines = list(render_table(titles, rows))
    yield from lines


def _render_wide_nodes(nodes: Sequence[NodeOverview]) -> Iterator[str]:
    rows = []
    for node in nodes:
        first = (node.name or "(any)", node.word, _count_running(node))
        for pool in node.pools or (None,):
            if pool is None:
                rows.append((*first, "", "", "", ""))
            else:
                rows.append((*first, pool.driver, pool.pool, ", ".join(pool.used), ", ".join(pool.free)))
            first = ("", "", "")
    yield from render_table(("node", "state", "pods", "driver", "pool", "used", "free"), rows)


def _render_node_remarks(nodes: Sequence[NodeOverview]) -> Iterator[str]:
    yield from (sanitize_line(f"{node.name} is {node.word}: {node.why}") for node in nodes if node.why)
    yield from (
        sanitize_line(f"pool {pool.driver}/{pool.pool} is not usable: {pool.why}")
        for node in nodes
        for pool in node.pools
        if pool.why
    )
    fenced = next((node.name for node in nodes if node.word == "fenced"), "")
    if fenced:
        yield sanitize_line(f"hint: `dray unfence node {fenced}` lets pods run there again")


def _render_placed(placed: Sequence[tuple[str, PodOverview]], *, wide: bool) -> Iterator[str]:
    rows = [
        (
            pod.name,
            pod.word,
            node,
            ", ".join(device.full_name if wide else str(device) for device in pod.devices),
        )
        for node, pod in placed
    ]
    yield from render_table(("pod", "state", "node", "devices"), rows)
    unready = next((pod for _, pod in placed if pod.why), None)
    if unready is not None:
        yield sanitize_line(f"{unready.name} is {unready.word}: {unready.why}")
        command = f"kubectl describe {_format_pod_argument(unready.name)}"
        yield sanitize_line(f"hint: `{command}` shows what its containers wait for")


def _render_waiting(pods: Sequence[PodOverview], width: int) -> Iterator[str]:
    columns = ([pod.name for pod in pods], [pod.word for pod in pods])
    other_columns = sum(
        max(len(sanitize_line(text)) for text in texts) + len(COLUMN_GAP) for texts in columns
    )
    left = max(width - other_columns, _MIN_REASON_CHARS // 2) if width else _MIN_REASON_CHARS * 2
    rows = [(pod.name, pod.word, _truncate_reason(pod.why, left)) for pod in pods]
    yield from render_table(("pod", "state", "why"), rows)
    yield sanitize_line(f"hint: `dray explain {_format_pod_argument(pods[0].name)}` shows the whole reason")


def _format_pod_argument(name: str) -> str:
    """Format a pod as a command-line argument."""
    namespace, _, pod = name.partition("/")
    return f"pod/{pod}" + (f" -n {namespace}" if namespace != "default" else "")


def _build_node_rows(node: NodeOverview, *, together: bool = True) -> Iterator[tuple[str, str, str, str]]:
    """Build a row for a node; or one per driver, where the devices do not fit in one."""
    devices = [
        f"{sanitize_line(pool.driver)} {_render_usage_bar(len(pool.used), len(pool.used) + len(pool.free))}"
        for pool in node.pools
    ]
    first, *more = ["   ".join(devices)] if together else devices or [""]
    yield node.name or "(any)", node.word, _count_running(node), first
    yield from (("", "", "", each) for each in more)


def _count_running(node: NodeOverview) -> str:
    return str(sum(pod.word in _RUNNING_STATES for pod in node.pods)) if node.name else ""


def _render_usage_bar(used: int, total: int) -> str:
    """Render the usage of a pool: a square per device when there are few, and always the numbers."""
    few = "■" * used + "□" * (total - used) + " " if total <= 16 else ""
    return f"{few}{used}/{total}"


def _truncate_reason(why: str, width: int) -> str:
    line = why.partition("\n")[0]
    return line if len(line) <= width else line[: width - 1] + "…"
