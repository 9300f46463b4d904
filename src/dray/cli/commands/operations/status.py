"""`dray status`: what runs where, and which devices are used."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from dray.cli.app import YES
from dray.cli.input.server_connection import reached, server_options
from dray.cli.output.tables import GAP, table
from dray.cli.output.text import flat

if TYPE_CHECKING:
    from dray.cluster.live.overview import NodeUse, Overview, SeatedPod

_CLEAR = "\x1b[H\x1b[2J"
_SHORTEST = 48
"""Half as many characters of a reason as are shown where nobody knows how many fit."""
_PAUSE_SECONDS = 1.0
_ALIVE = ("running", "not ready", "starting")


@click.command("status")
@server_options
@click.option(
    "-w", "--watch", is_flag=True, help="Show it again whenever something has changed, until Ctrl-C."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Text for people, json or yaml for machines.",
)
def command(kubeconfig: str, context: str, watch: bool, output: str) -> int:
    """Show the nodes of a cluster with their pods and devices, and the pods that wait.

    Works with any Kubernetes API server. `dray explain pod/NAME` tells why one of them waits.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_shown(kubeconfig, context, watch=watch, output=output))
    return YES


async def _shown(kubeconfig: str, context: str, *, watch: bool, output: str) -> None:
    from dray.client.rest_client import TROUBLE
    from dray.cluster.live.overview import overview
    from dray.cluster.live.snapshot import bundle_of

    async with reached(kubeconfig, context) as (client, _):
        before, silent = None, False
        while True:
            try:
                seen = await bundle_of(client)
            except TROUBLE as trouble:
                if before is None:
                    raise
                # Whoever watches wants to see how it goes on.
                if not silent:
                    click.echo(flat(f"the server does not answer, still trying: {trouble}"), err=True)
                silent = True
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            silent = False
            now = overview(seen.nodes, seen.pods, seen.claims, seen.slices)
            if now != before:
                _show(now, output, again=before is not None)
            before = now
            if not watch:
                return
            await asyncio.sleep(_PAUSE_SECONDS)


def _show(now: Overview, output: str, *, again: bool) -> None:
    if output != "text":
        from dataclasses import asdict

        from dray.manifests import as_json, as_yaml

        written = as_json([asdict(now)]) if output == "json" else as_yaml([asdict(now)])
        click.echo(f"---\n{written}" if again and output == "yaml" else written, nl=False)
        return
    if again and sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    for line in lines(now, shutil.get_terminal_size((0, 0)).columns):
        click.echo(line)


def lines(now: Overview, width: int = 0) -> Iterator[str]:
    """A cluster as text: a table of nodes, one of pods, and who waits; it fits `width`, if that is known."""
    if not now.nodes:
        yield "there is no node yet"
    else:
        titles = ("node", "state", "pods", "devices")
        shown = list(table(titles, [row for node in now.nodes for row in _node_rows(node)]))
        if width and max(map(len, shown)) > width:
            shown = list(
                table(titles, [row for node in now.nodes for row in _node_rows(node, together=False)])
            )
        yield from shown
        yield from (flat(f"{node.name} is {node.word}: {node.why}") for node in now.nodes if node.why)
        fenced = next((node.name for node in now.nodes if node.word == "fenced"), "")
        if fenced:
            yield flat(f"hint: `dray unfence node {fenced}` lets pods run there again")
    placed = [(node.name, pod) for node in now.nodes for pod in node.pods]
    if placed:
        yield ""
        rows = [(pod.name, pod.word, node, ", ".join(pod.devices)) for node, pod in placed]
        yield from table(("pod", "state", "node", "devices"), rows)
        ailing = next((pod for _, pod in placed if pod.why), None)
        if ailing is not None:
            yield flat(f"{ailing.name} is {ailing.word}: {ailing.why}")
            yield flat(f"hint: `kubectl describe {_typed(ailing.name)}` tells what its containers wait for")
    if now.waiting:
        yield ""
        beside = sum(max(len(flat(text)) for text in texts) + len(GAP) for texts in _beside(now.waiting))
        room = max(width - beside, _SHORTEST // 2) if width else _SHORTEST * 2
        rows3 = [(pod.name, pod.word, _short(pod.why, room)) for pod in now.waiting]
        yield from table(("pod", "state", "why"), rows3)
        yield flat(f"hint: `dray explain {_typed(now.waiting[0].name)}` tells the whole reason")


def _beside(pods: Sequence[SeatedPod]) -> Iterator[list[str]]:
    """What stands beside the reasons why pods wait."""
    yield [pod.name for pod in pods]
    yield [pod.word for pod in pods]


def _typed(name: str) -> str:
    """A pod as one types it."""
    namespace, _, pod = name.partition("/")
    return f"pod/{pod}" + (f" -n {namespace}" if namespace != "default" else "")


def _node_rows(node: NodeUse, *, together: bool = True) -> Iterator[tuple[str, str, str, str]]:
    """A row for a node; or, where its devices do not fit beside each other, one for each of its drivers."""
    devices = [
        f"{flat(pool.driver)} {_bar(len(pool.used), len(pool.used) + len(pool.free))}" for pool in node.pools
    ]
    running = sum(pod.word in _ALIVE for pod in node.pods)
    first, *more = ["   ".join(devices)] if together else devices or [""]
    yield node.name or "(any)", node.word, str(running) if node.name else "", first
    yield from (("", "", "", each) for each in more)


def _bar(used: int, total: int) -> str:
    """How full a pool is: a square for each device when there are few of them, and always the numbers."""
    few = "■" * used + "□" * (total - used) + " " if total <= 16 else ""
    return f"{few}{used}/{total}"


def _short(why: str, room: int) -> str:
    line = why.partition("\n")[0]
    return line if len(line) <= room else line[: room - 1] + "…"
