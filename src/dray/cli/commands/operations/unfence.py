"""`dray unfence node`: takes a fenced node back into service."""

from __future__ import annotations

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options
from dray.cli.output.text import sanitize_line


@click.group("unfence", no_args_is_help=True)
def command() -> None:
    """Take a fenced node back into service."""


@command.command("node")
@click.argument("name")
@server_options
def node(name: str, kubeconfig: str, context: str) -> int:
    """Let pods run again on the fenced node NAME.

    Removes the taint `node.kubernetes.io/out-of-service`, whoever added it.
    """
    return run_to_completion(_unfence_node(name, kubeconfig, context))


async def _unfence_node(name: str, kubeconfig: str, context: str) -> int:
    from dray.cluster.live.fencing import NodeFencer

    async with connect_to_server(kubeconfig, context) as (client, _):
        was_fenced = await NodeFencer(client, name).unfence()
    if was_fenced is None:
        click.echo(sanitize_line(f"there is no node `{name}`"), err=True)
        return EXIT_NO
    state = "is back in service" if was_fenced else "was not fenced"
    click.echo(sanitize_line(f"node {name} {state}"), err=True)
    return EXIT_YES
