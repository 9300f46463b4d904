"""`dray doctor restore`: does anybody still wait for nodes since the server was restored from a copy?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from dray.cli.app import NO, YES
from dray.cli.input.options import output_option
from dray.cli.input.server_connection import done, reached, server_options
from dray.cli.output.text import clean
from dray.errors import InputError


@click.command("restore")
@server_options
@click.option("--settle", is_flag=True, help="Wait for nobody any more.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def command(kubeconfig: str, context: str, settle: bool, yes: bool, output: str) -> int:
    """Say which nodes have not told what they have in their hands since the server was restored.

    Until they have, devices that they can reach are given to nobody else. Ends with 1 while somebody is
    waited for. With `--settle` the waiting ends by your word: give it only when nothing that the server does
    not know of uses a device, because two pods that use one device at once can destroy each other's work. A
    single node that is switched off is better fenced: `dray fence node NAME`.
    """
    report = done(_asked(kubeconfig, context))
    if settle and _is_open(report):
        if not yes:
            for line in lines(report):
                click.echo(clean(line), err=True)
            click.confirm(
                "Does no node have a device of which the server does not know?", abort=True, err=True
            )
        report = done(_asked(kubeconfig, context, settle=True))
    if output == "json":
        from dray.manifests import as_json

        click.echo(as_json([report]), nl=False)
    else:
        for line in lines(report):
            click.echo(clean(line))
    return NO if _is_open(report) else YES


async def _asked(kubeconfig: str, context: str, *, settle: bool = False) -> dict[str, Any]:
    from dray.api.json_text import read_json
    from dray.api.preparation import RESTORED_PAGE
    from dray.client.errors import NotFound
    from dray.client.transport import Request

    way = ("POST", f"{RESTORED_PAGE}/settle") if settle else ("GET", f"{RESTORED_PAGE}/nodes")
    async with reached(kubeconfig, context) as (client, caller):
        try:
            reply = await caller.call(Request(*way), attempts=1)
        except NotFound:
            raise InputError(f"`{client.address}` knows of no restores; is it a dray server?") from None
        report: dict[str, Any] = read_json(reply.body)
        return report


def _is_open(report: Mapping[str, Any]) -> bool:
    return bool(report["id"]) and not report["settled"]


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A report for people."""
    if not report["id"]:
        yield "the server never was restored from a copy"
        return
    if not _is_open(report):
        yield f"restored at {report['at']}, settled at {report['settled']}: nobody is waited for"
        return
    for node in report["awaited"]:
        yield f"node {node} has not said what it has in its hands"
    count = len(report["awaited"])
    waits = "1 node is waited for" if count == 1 else f"{count} nodes are waited for"
    if report["seconds"]:
        waits += f", and {report['seconds']:g} seconds for nodes that the copy does not know"
    yield f"restored at {report['at']}: {waits}"
    if report["awaited"]:
        yield f"hint: `dray fence node {report['awaited'][0]}` when it is switched off"
