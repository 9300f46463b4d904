"""`dray reference`: writes the reference pages of the documentation."""

from __future__ import annotations

import os

import click

from dray.cli.commands.development import reference_pages
from dray.errors import InputError


@click.command("reference")
@click.argument("folder", metavar="FOLDER")
@click.option("--check", is_flag=True, help="Write nothing; check whether the pages are up to date.")
def command(folder: str, check: bool) -> int:
    """Write the reference pages to FOLDER: commands, rules, kinds with their fields, gates, limits.

    The pages are generated from the tables that the code itself uses.
    """
    pages = reference_pages.render_all_pages()
    if check:
        stale = [name for name, text in pages.items() if _read_file(os.path.join(folder, name)) != text]
        for name in stale:
            click.echo(f"{os.path.join(folder, name)} is not up to date")
        return 1 if stale else 0
    try:
        os.makedirs(folder, exist_ok=True)
        for name, text in pages.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as refused:
        raise InputError(f"cannot write to `{folder}`: {refused.strerror}") from None
    click.echo(f"wrote {len(pages)} pages to {folder}", err=True)
    return 0


def _read_file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError:
        return None
