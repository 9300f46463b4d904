"""`dray server backup` and `dray server restore`: back up the store of a server, and restore it."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import click

from dray.cli.commands.services.service_options import DATA_DIR
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options

_IDLE_TIMEOUT_SECONDS = 120.0


@click.command(short_help="Back up the store of a running server into a file")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@server_options
def backup(target: Path, force: bool, kubeconfig: str, context: str) -> int:
    """Copy everything a running server stores into TARGET, at one revision, without interrupting it.

    The file contains secrets as well; only you can read it.
    """
    if target.exists() and not force:
        raise click.UsageError(f"`{target}` exists; move it away, or overwrite it with `--force`")
    revision = run_to_completion(_download_backup(target, kubeconfig, context))
    click.echo(f"wrote {target}: everything at revision {revision}")
    return 0


async def _download_backup(target: Path, kubeconfig: str, context: str) -> str:
    from dray.client.transport import TransportRequest

    part = target.with_name(f".{target.name}.part")
    async with connect_to_server(kubeconfig, context) as (_, rest_client):
        try:
            async with rest_client.open_stream(
                TransportRequest("GET", "/dray/backup"), idle_timeout=_IDLE_TIMEOUT_SECONDS
            ) as answer:
                with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    async for chunk in answer.chunks:
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                revision = answer.headers.get("dray-revision", "")
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    return revision


@click.command(short_help="Create a store from a backup")
@click.argument("source", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    help="The data directory of the server to restore.",
)
@click.option(
    "--store",
    default="",
    metavar="ADDRESS",
    help="Restore elsewhere: `etcd://HOST:PORT[,...]/PREFIX` or a file.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing store.")
def restore(source: Path, data_dir: Path, store: str, force: bool) -> int:
    """Create the store of a server from SOURCE, a backup that `dray server backup` made.

    The server must not run. A damaged backup is refused, and nothing is overwritten without `--force`. A
    restored server waits until all nodes have reported their prepared devices before it allocates what they
    can reach; `dray doctor restore` shows the progress.
    """
    from dray.cluster.services.api_server import KEYS_DIRECTORY, STORE_FILE, prepare_directory
    from dray.store.backups import restore_store

    if not store:
        prepare_directory(data_dir)
    address = store or str(data_dir / STORE_FILE)
    revision = run_to_completion(
        restore_store(source, address, force=force, extra_values=_build_restore_mark())
    )
    click.echo(f"restored {source} into {address} at revision {revision}")
    _warn_without_keys(data_dir / KEYS_DIRECTORY)
    return 0


def _warn_without_keys(keys: Path) -> None:
    """Say what it means that a restored server has no keys: they are in no backup."""
    if (keys / "ca.key").exists():
        return
    click.echo(
        f"warning: there are no keys in `{keys}`, and a backup has none: the server will make new ones, and "
        "refuse certificates, kubeconfigs and service account tokens of the old ones\n"
        f"hint: copy the keys of the old server to `{keys}` before the first start (or name them with "
        "`--keys`), or give users, nodes and drivers new credentials",
        err=True,
    )


def _build_restore_mark() -> dict[bytes, bytes]:
    """Build the marker by which the server and every node recognise the restore."""
    from dray.claims.ledger.restore_marker import MARKER_KEY, RestoreMarker, encode_marker
    from dray.clock import SystemClock, format_timestamp

    at = format_timestamp(SystemClock().now())
    return {MARKER_KEY: encode_marker(RestoreMarker(id=str(uuid4()), at=at))}
