"""`dray doctor ledger`: do the device ledger and the claims agree?"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dray.cli.app import NO, YES
from dray.cli.input.options import output_option
from dray.cli.input.server_connection import done, reached, server_options
from dray.cli.output.text import clean
from dray.errors import InputError

SHOWN = 50
"""So many findings are told to people; machines get all of them."""


@click.command("ledger")
@click.option(
    "--store",
    default="",
    metavar="ADDRESS",
    help="Look into a store without a server: a file, or `etcd://HOST:PORT[,...]/PREFIX`.",
)
@server_options
@click.option("--repair", is_flag=True, help="Write the rows that differ anew.")
@output_option
def command(store: str, kubeconfig: str, context: str, repair: bool, output: str) -> int:
    """Compare the device ledger with what claims and preparations say, row by row.

    Asks a running server, or looks into a store itself with `--store`. Ends with 1 when something differs;
    with `--repair`, when something still differs afterwards.
    """
    if store and (kubeconfig or context):
        raise InputError("give either `--store` or a server, not both")
    report = done(_in_store(store, repair) if store else _at_server(kubeconfig, context, repair))
    if output == "json":
        from dray.manifests import as_json

        click.echo(as_json([report]), nl=False)
    else:
        for line in lines(report):
            click.echo(clean(line))
    return YES if report["agrees"] else NO


async def _at_server(kubeconfig: str, context: str, repair: bool) -> dict[str, Any]:
    from dray.api.json_text import read_json
    from dray.client.errors import NotFound
    from dray.client.transport import Request

    async with reached(kubeconfig, context) as (client, caller):
        path = ("POST", "/dray/ledger/repair") if repair else ("GET", "/dray/ledger")
        try:
            reply = await caller.call(Request(*path), attempts=1)
        except NotFound:
            raise InputError(f"`{client.address}` has no ledger; is it a dray server?") from None
        report: dict[str, Any] = read_json(reply.body)
        return report


async def _in_store(address: str, repair: bool) -> dict[str, Any]:
    from dray.server.ledger import reconciliation
    from dray.server.watch.cache import Cache
    from dray.store import open_store

    _check_exists(address)
    async with await open_store(address) as store:
        cache = Cache(store)
        with _progress() as progress:
            progress("reading the store", 0, 0)
            await cache.fill()
            following = asyncio.create_task(cache.follow())
            try:
                report = await (
                    reconciliation.repair(store, cache, progress)
                    if repair
                    else reconciliation.audit(cache, progress)
                )
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        return report.document()


def _check_exists(address: str) -> None:
    """A doctor does not make the patient: opening a file that is absent would create it."""
    path = address.removeprefix("sqlite:")
    if "://" not in path and path != "memory:" and not Path(path).exists():
        raise InputError(
            f"there is no store at `{address}`; the server's is `store.db` in its data directory"
        )


@contextmanager
def _progress() -> Iterator[Any]:
    """Tells on a terminal what is being done."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what)
            bar.update(tasks[what], completed=done, total=total or None)

        yield tell


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """A report for people."""
    for finding in report["repaired"]:
        yield f"repaired: {finding['place']}: {finding['flaw']}: {finding['message']}"
    findings = report["findings"]
    for finding in findings[:SHOWN]:
        yield f"{finding['place']}: {finding['flaw']}: {finding['message']}"
    if len(findings) > SHOWN:
        yield f"... and {len(findings) - SHOWN} more; `-o json` tells all"
    looked = (
        f"{report['claims']:,} claims, {report['preparations']:,} preparations and {report['rows']:,} rows "
        f"at revision {report['revision']}"
    )
    if not findings:
        yield f"{looked}: ledger and claims agree"
        return
    yield f"{looked}: {len(findings):,} differ"
    if any(finding["repairable"] for finding in findings):
        yield "hint: `dray doctor ledger --repair` writes the rows anew"
