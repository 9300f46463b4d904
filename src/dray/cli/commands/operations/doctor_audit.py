"""`dray doctor audit`: is the audit log whole, or was something changed, taken out or cut off?"""

from __future__ import annotations

from pathlib import Path

import click

from dray.cli.app import EXIT_NO, EXIT_YES
from dray.cli.output.text import sanitize_text
from dray.errors import InputError


@click.command("audit")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "--expect",
    multiple=True,
    metavar="HASH",
    help="A line with this hash must be in the log; whoever keeps hashes elsewhere finds a cut-off end so.",
)
def command(paths: tuple[Path, ...], expect: tuple[str, ...]) -> int:
    """Walk along the chain of an audit log and name every place where it is broken.

    PATH is the log; its rotated files are found beside it. With several PATHs, those are read as they are
    given, oldest first. Prints the hash of the last line: keep it elsewhere, and `--expect` it next time.
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
