"""`dray gates`: the feature gates, what they are and how they stand."""

from __future__ import annotations

import sys
from typing import Any

import click

from dray.cli.options import gates_option
from dray.gates import GateSet
from dray.manifests import as_json

_WIDE = 200
"""Columns when nobody sees a screen: no line is broken."""


@click.command("gates")
@gates_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people or json for machines.",
)
def command(gates: GateSet, output: str) -> int:
    """Show the feature gates: stage, default, how they stand now, what they require."""
    if output == "json":
        click.echo(as_json([{"gates": [_document(gate, on) for gate, on in gates]}]), nl=False)
    else:
        _print(gates)
    return 0


def _document(gate: Any, on: bool) -> dict[str, Any]:
    return {
        "name": gate.name,
        "stage": gate.stage.value,
        "default": gate.default,
        "now": on,
        "requires": list(gate.requires),
        "about": gate.about,
    }


def _print(gates: GateSet) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("name", "stage", "default", "now", "requires", "about"):
        table.add_column(title, no_wrap=title in ("name", "stage"), overflow="fold")
    for gate, on in gates:
        words = (
            gate.name,
            gate.stage.value,
            _switch(gate.default),
            _switch(on),
            ", ".join(gate.requires),
            gate.about,
        )
        table.add_row(*(Text(word) for word in words), style=None if on == gate.default else "bold")
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _switch(on: bool) -> str:
    return "on" if on else "off"
