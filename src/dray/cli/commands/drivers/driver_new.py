"""`dray driver new`: writes the project of a working driver, to be changed by its author."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from dray.cli.exit_codes import EXIT_YES
from dray.errors import InputError


@click.command("new")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[DIR]")
def command(name: str, folder: Path | None) -> int:
    """Write a driver called NAME, for example `gpu.example.com`, with tests and an example, to DIR.

    NAME is the driver name in claims: a domain of yours, with a word for the devices in front. DIR must be
    empty or not exist. [default: made from that word, for example `gpu-driver`]
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
