"""`dray doctor restore`: shows the nodes a restored server still waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.options import output_option
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options
from dray.cli.output.text import sanitize_text
from dray.errors import InputError


@click.command("restore")
@server_options
@click.option("--settle", is_flag=True, help="Stop waiting for nodes.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
def command(kubeconfig: str, context: str, settle: bool, yes: bool, output: str) -> int:
    """Show which nodes have not reported their prepared devices since the server was restored.

    Until they have, devices that they can reach are given to nobody else. Exit code 1 while a node is
    missing. `--settle` ends the wait: use it only when nothing that the server does not know of uses a
    device, because two pods that use one device at once can destroy each other's work. A single node that is
    switched off is better fenced: `dray fence node NAME`.
    """
    report = run_to_completion(_request_report(kubeconfig, context))
    if settle and _is_pending(report):
        if not yes:
            for line in render_report(report):
                click.echo(sanitize_text(line), err=True)
            click.confirm(
                "Does no node have a device of which the server does not know?", abort=True, err=True
            )
        report = run_to_completion(_request_report(kubeconfig, context, settle=True))
    if output == "json":
        from dray.manifests import to_json

        click.echo(to_json([report]), nl=False)
    else:
        for line in render_report(report):
            click.echo(sanitize_text(line))
    return EXIT_NO if _is_pending(report) else EXIT_YES


async def _request_report(kubeconfig: str, context: str, *, settle: bool = False) -> dict[str, Any]:
    from dray.api.json_text import read_json
    from dray.api.preparation import RESTORED_PATH
    from dray.client.errors import NotFoundError
    from dray.client.transport import TransportRequest

    request = ("POST", f"{RESTORED_PATH}/settle") if settle else ("GET", f"{RESTORED_PATH}/nodes")
    async with connect_to_server(kubeconfig, context) as (client, rest_client):
        try:
            reply = await rest_client.call(TransportRequest(*request), max_attempts=1)
        except NotFoundError:
            raise InputError(f"`{client.address}` knows of no restores; is it a dray server?") from None
        report: dict[str, Any] = read_json(reply.body)
        return report


def _is_pending(report: Mapping[str, Any]) -> bool:
    return bool(report["id"]) and not report["settled"]


def render_report(report: Mapping[str, Any]) -> Iterator[str]:
    """Render a report as text."""
    if not report["id"]:
        yield "the server was never restored from a backup"
        return
    if not _is_pending(report):
        yield f"restored at {report['at']}, settled at {report['settled']}: no node is missing"
        return
    for node in report["awaited"]:
        yield f"node {node} has not reported its prepared devices"
    count = len(report["awaited"])
    waits = "waiting for 1 node" if count == 1 else f"waiting for {count} nodes"
    if report["seconds"]:
        waits += f", and {report['seconds']:g} seconds for nodes that the backup does not know"
    yield f"restored at {report['at']}: {waits}"
    if report["awaited"]:
        yield f"hint: `dray fence node {report['awaited'][0]}` when it is switched off"
