"""`dray server backup` and `dray server restore`: copies of what a server keeps, and the way back."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import click

from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options

_IDLE_TIMEOUT_SECONDS = 120.0


@click.command(short_help="Copy everything a running server keeps into a file")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
@server_options
def backup(target: Path, force: bool, kubeconfig: str, context: str) -> int:
    """Copy everything a running server keeps into TARGET, at one revision, while others go on.

    The file holds secrets as well; it is readable by you alone.
    """
    if target.exists() and not force:
        raise click.UsageError(f"`{target}` exists; move it away, or overwrite it with `--force`")
    revision = run_to_completion(_download_backup(target, kubeconfig, context))
    click.echo(f"wrote {target}: everything at revision {revision}")
    return 0


async def _download_backup(target: Path, kubeconfig: str, context: str) -> str:
    from dray.client.transport import TransportRequest

    part = target.with_name(f".{target.name}.part")
    async with connect_to_server(kubeconfig, context) as (_, caller):
        try:
            async with caller.open_stream(
                TransportRequest("GET", "/dray/backup"), idle_timeout=_IDLE_TIMEOUT_SECONDS
            ) as answer:
                with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    async for piece in answer.chunks:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                revision = answer.headers.get("dray-revision", "")
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    return revision


@click.command(short_help="Make a store from a copy")
@click.argument("source", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default="dray-data",
    show_default=True,
    help="The directory of the server that is to go on from the copy.",
)
@click.option(
    "--store",
    default="",
    metavar="ADDRESS",
    help="Restore elsewhere: `etcd://HOST:PORT[,...]/PREFIX` or a file.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def restore(source: Path, data_dir: Path, store: str, force: bool) -> int:
    """Make the store of a server from SOURCE, a copy that `dray server backup` made.

    The server must not run. A damaged copy is refused, and nothing is overwritten without `--force`. A server
    that goes on from a copy waits until all nodes have told it what they have in their hands before it gives
    out what they can reach; `dray doctor restore` tells how far it is.
    """
    from dray.cluster.services.api_server import STORE_FILE, prepare_directory
    from dray.store.backups import restore_store as restored

    if not store:
        prepare_directory(data_dir)
    address = store or str(data_dir / STORE_FILE)
    revision = run_to_completion(restored(source, address, force=force, extra_values=_build_restore_mark()))
    click.echo(f"restored {source} into {address} at revision {revision}")
    return 0


def _build_restore_mark() -> dict[bytes, bytes]:
    """What tells the server, and through it every node, that this is another past."""
    from dray.claims.ledger.restore_marker import MARKER_KEY, RestoreMarker, encode_marker
    from dray.clock import SystemClock, format_timestamp

    at = format_timestamp(SystemClock().now())
    return {MARKER_KEY: encode_marker(RestoreMarker(id=str(uuid4()), at=at))}
