"""`dray driver new`: write a driver that works, to be changed into one that does something."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from dray.cli.app import EXIT_YES
from dray.errors import InputError


@click.command("new")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
def command(name: str, folder: Path | None) -> int:
    """Write a driver called NAME, for example `gpu.example.com`, with tests and an example, to DIR.

    NAME is what claims say: a domain that is yours, with a word for the devices in front. DIR must be empty
    or not be there; without one it is made of that word, for example `gpu-driver`.
    """
    from dray.driver.skeleton import build_project_names, render_project

    names = build_project_names(name)
    where = folder or Path(names.directory)
    try:
        if os.path.lexists(where) and (not where.is_dir() or any(where.iterdir())):
            raise InputError(f"`{where}` is there already; nothing was written. Name another directory")
        where.mkdir(parents=True, exist_ok=True)
        for file, text in render_project(names).items():
            with (where / file).open("x", encoding="utf-8", newline="\n") as opened:
                opened.write(text)
            click.echo(str(where / file))
    except OSError as refused:
        raise InputError(f"cannot write to `{where}`: {refused.strerror}") from None
    click.echo(f"hint: cd {shlex.quote(str(where))}; pytest; python {names.module}.py devices", err=True)
    return EXIT_YES
