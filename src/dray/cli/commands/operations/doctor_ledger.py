"""`dray doctor ledger`: compares the device ledger with the claims."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.options import output_option
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options
from dray.cli.output.progress import show_steps
from dray.cli.output.text import sanitize_text
from dray.errors import InputError

MAX_SHOWN = 50
"""So many findings are printed as text; JSON output has all of them."""


@click.command("ledger")
@click.option(
    "--store",
    default="",
    metavar="ADDRESS",
    help="Read a store without a server: a file, or `etcd://HOST:PORT[,...]/PREFIX`.",
)
@server_options
@click.option("--repair", is_flag=True, help="Rewrite the rows that differ.")
@output_option
def command(store: str, kubeconfig: str, context: str, repair: bool, output: str) -> int:
    """Compare the device ledger with claims and preparations, row by row.

    Asks a running server, or reads a store itself with `--store`. Exit code 1 when something differs; with
    `--repair`, when something still differs afterwards.
    """
    if store and (kubeconfig or context):
        raise InputError("give either `--store` or a server, not both")
    report = run_to_completion(
        _audit_store(store, repair) if store else _audit_server(kubeconfig, context, repair)
    )
    if output == "json":
        from dray.manifests import to_json

        click.echo(to_json([report]), nl=False)
    else:
        for line in render_report(report):
            click.echo(sanitize_text(line))
    return EXIT_YES if report["agrees"] else EXIT_NO


async def _audit_server(kubeconfig: str, context: str, repair: bool) -> dict[str, Any]:
    from dray.api.json_text import read_json
    from dray.client.errors import NotFoundError
    from dray.client.transport import TransportRequest

    async with connect_to_server(kubeconfig, context) as (client, rest_client):
        path = ("POST", "/dray/ledger/repair") if repair else ("GET", "/dray/ledger")
        try:
            reply = await rest_client.call(TransportRequest(*path), max_attempts=1)
        except NotFoundError:
            raise InputError(f"`{client.address}` has no ledger; is it a dray server?") from None
        report: dict[str, Any] = read_json(reply.body)
        return report


async def _audit_store(address: str, repair: bool) -> dict[str, Any]:
    from dray.server.ledger import reconciliation
    from dray.server.watch.cache import WatchCache
    from dray.store import open_store

    _check_exists(address)
    async with await open_store(address) as store:
        cache = WatchCache(store)
        with show_steps() as progress:
            progress("reading the store", 0, 0)
            await cache.resync()
            following = asyncio.create_task(cache.follow())
            try:
                report = await (
                    reconciliation.repair_ledger(store, cache, progress)
                    if repair
                    else reconciliation.audit_cached_ledger(cache, progress)
                )
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        return report.to_document()


def _check_exists(address: str) -> None:
    """Raise an error for a missing store: opening the file would create it."""
    path = address.removeprefix("sqlite:")
    if "://" not in path and path != "memory:" and not Path(path).exists():
        raise InputError(
            f"there is no store at `{address}`; the server's is `store.db` in its data directory"
        )


def render_report(report: Mapping[str, Any]) -> Iterator[str]:
    """Render a report as text."""
    for finding in report["repaired"]:
        yield f"repaired: {finding['place']}: {finding['flaw']}: {finding['message']}"
    findings = report["findings"]
    for finding in findings[:MAX_SHOWN]:
        yield f"{finding['place']}: {finding['flaw']}: {finding['message']}"
    if len(findings) > MAX_SHOWN:
        yield f"... and {len(findings) - MAX_SHOWN} more; `-o json` tells all"
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
