"""`dray unfence node`: let pods run again on a node that was fenced."""

from __future__ import annotations

import click

from dray.cli.app import NO, YES
from dray.cli.input.server_connection import done, reached, server_options
from dray.cli.output.text import flat


@click.group("unfence", no_args_is_help=True)
def command() -> None:
    """Take back into service what was fenced."""


@command.command("node")
@click.argument("name")
@server_options
def node(name: str, kubeconfig: str, context: str) -> int:
    """Let pods run on node NAME again, which was fenced.

    Takes the taint `node.kubernetes.io/out-of-service` away, whoever put it on.
    """
    return done(_unfenced(name, kubeconfig, context))


async def _unfenced(name: str, kubeconfig: str, context: str) -> int:
    from dray.cluster.live.fencing import Fencing

    async with reached(kubeconfig, context) as (client, _):
        was_fenced = await Fencing(client, name).open()
    if was_fenced is None:
        click.echo(flat(f"there is no node `{name}`"), err=True)
        return NO
    said = "is back in service" if was_fenced else "was not fenced"
    click.echo(flat(f"node {name} {said}"), err=True)
    return YES
