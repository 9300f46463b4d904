"""`dray status`: what runs where, and which devices are used."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from dray.cli.door import YES
from dray.cli.options import output_option
from dray.cli.report import flat
from dray.cli.servers import reached, server_options
from dray.cli.tables import table

if TYPE_CHECKING:
    from dray.cluster.overview import NodeUse, Overview

_CLEAR = "\x1b[H\x1b[2J"
_SHORTEST = 48
"""As many characters of a reason are shown; `dray explain` tells it whole."""


@click.command("status")
@server_options
@click.option(
    "-w", "--watch", is_flag=True, help="Show it again whenever something has changed, until Ctrl-C."
)
@output_option
def command(kubeconfig: str, context: str, watch: bool, output: str) -> int:
    """Show the nodes of a cluster with their pods and devices, and the pods that wait.

    Works with any Kubernetes API server. `dray explain pod/NAME` tells why one of them waits.
    """
    with suppress(KeyboardInterrupt):
        asyncio.run(_shown(kubeconfig, context, watch=watch, output=output))
    return YES


async def _shown(kubeconfig: str, context: str, *, watch: bool, output: str) -> None:
    from dray.cluster.overview import overview
    from dray.cluster.present import bundle_of

    async with reached(kubeconfig, context) as (client, _):
        before = None
        while True:
            seen = await bundle_of(client)
            now = overview(seen.nodes, seen.pods, seen.claims, seen.slices)
            if now != before:
                _show(now, output, clear=watch and before is not None)
            before = now
            if not watch:
                return
            await asyncio.sleep(1)


def _show(now: Overview, output: str, *, clear: bool) -> None:
    if output == "json":
        from dataclasses import asdict

        from dray.manifests import as_json

        click.echo(as_json([asdict(now)]), nl=False)
        return
    if clear and sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    for line in lines(now):
        click.echo(line)


def lines(now: Overview) -> Iterator[str]:
    """A cluster as text: a table of nodes, one of pods, and who waits."""
    if not now.nodes:
        yield "there is no node yet"
    else:
        yield from table(("node", "state", "pods", "devices"), [_node_row(node) for node in now.nodes])
        fenced = next((node.name for node in now.nodes if node.word == "fenced"), "")
        if fenced:
            yield flat(f"hint: `dray unfence node {fenced}` lets pods run there again")
    placed = [(node.name, pod) for node in now.nodes for pod in node.pods]
    if placed:
        yield ""
        rows = [(pod.name, pod.word, node, ", ".join(pod.devices)) for node, pod in placed]
        yield from table(("pod", "state", "node", "devices"), rows)
    if now.waiting:
        yield ""
        rows3 = [(pod.name, pod.word, _short(pod.why)) for pod in now.waiting]
        yield from table(("pod", "state", "why"), rows3)
        yield flat(f"hint: `dray explain pod/{now.waiting[0].name.partition('/')[2]}` tells the whole reason")


def _node_row(node: NodeUse) -> tuple[Any, ...]:
    devices = "   ".join(
        f"{flat(pool.driver)} {_bar(len(pool.used), len(pool.used) + len(pool.free))}" for pool in node.pools
    )
    running = sum(pod.word in ("running", "starting") for pod in node.pods)
    return node.name or "(any)", node.word, str(running) if node.name else "", devices


def _bar(used: int, total: int) -> str:
    """How full a pool is: a square for each device when there are few of them, and always the numbers."""
    few = "■" * used + "□" * (total - used) + " " if total <= 16 else ""
    return f"{few}{used}/{total}"


def _short(why: str) -> str:
    line = why.partition("\n")[0]
    return line if len(line) <= _SHORTEST * 2 else line[: _SHORTEST * 2 - 1] + "…"
