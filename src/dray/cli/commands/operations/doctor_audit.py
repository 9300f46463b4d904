"""`dray doctor audit`: verifies that an audit log was not changed, shortened or cut off."""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.output.text import sanitize_text
from dray.errors import InputError


@click.command("audit")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "--expect",
    multiple=True,
    metavar="HASH",
    help="A line with this hash must be in the log; a hash stored elsewhere detects a truncated log.",
)
def command(paths: tuple[Path, ...], expect: tuple[str, ...]) -> int:
    """Verify the hash chain of an audit log and name every place where it is broken.

    PATH is the log; its rotated files are found beside it. Several PATHs are read in the order given, oldest
    first. Prints the hash of the last line: store it elsewhere, and pass it to `--expect` next time.
    """
    from dray.server.audit import list_log_files, verify_files

    files = list_log_files(paths[0]) if len(paths) == 1 else list(paths)
    if not files:
        raise InputError(f"there is no audit log at `{paths[0]}`")
    verdict = verify_files(files, frozenset(hash_.lower() for hash_ in expect))
    for finding in verdict.findings:
        click.echo(sanitize_text(f"{'broken' if finding.broken else 'note'}: {finding}"))
    lines = f"{verdict.lines:,} lines in {len(files)} file{'' if len(files) == 1 else 's'}"
    if not verdict.lines:
        click.echo("the log is empty")
    else:
        state = "the chain holds" if verdict.is_intact else "the chain is broken"
        click.echo(f"{lines}, numbers {verdict.first} to {verdict.last}: {state}; last hash {verdict.head}")
    return EXIT_YES if verdict.is_intact else EXIT_NO
