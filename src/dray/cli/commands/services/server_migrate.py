"""`dray server migrate`: convert the store of an older dray to the current format."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.commands.services.service_options import DATA_DIR
from dray.cli.exit_codes import EXIT_YES
from dray.cli.output.progress import show_steps
from dray.errors import InputError


@click.command(short_help="Convert the store of an older dray")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DATA_DIR,
    show_default=True,
    help="The data directory of the server.",
)
@click.option("--store", default="", metavar="FILE", help="A store or a backup elsewhere.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def migrate(data_dir: Path, store: str, dry_run: bool) -> int:
    """Convert the store of a server to the format of this dray.

    The server must not run. The old file is not changed: it stays beside the new one, as a backup. The new
    file is verified before it gets the name of the store, so that an interrupted migration leaves the old
    store. A store in the current format stays as it is.
    """
    from dray.store.sqlite.migration import migrate_file, read_format
    from dray.store.sqlite.rows import FORMAT_VERSION

    path = _find_file(data_dir, store)
    found = read_format(path)
    if found.is_current:
        click.echo(f"{path} has format {FORMAT_VERSION} already; nothing to do")
        return EXIT_YES
    if dry_run:
        click.echo(
            f"{path} would be converted from format {found.number} to {FORMAT_VERSION}: "
            f"{found.rows:,} records, {found.size / 2**20:.1f} MiB; about as much free disk is needed"
        )
        return EXIT_YES
    with show_steps() as progress:
        done = migrate_file(path, progress)
    click.echo(
        f"converted {path} from format {done.old_format} to {FORMAT_VERSION}: {done.rows:,} records, "
        f"everything at revision {done.revision}"
    )
    click.echo(f"the old file is {done.backup}; delete it when the server works")
    return EXIT_YES


def _find_file(data_dir: Path, store: str) -> Path:
    """Return the file of the store; only a file has a format."""
    from dray.cluster.services.api_server import STORE_FILE
    from dray.store.address import parse_sqlite_path

    path = parse_sqlite_path(store) if store else data_dir / STORE_FILE
    if path is None:
        raise InputError(f"`{store}` is no file; only files have a format, there is nothing to migrate")
    return path
