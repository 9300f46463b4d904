"""`dray gates`: the feature gates and their state."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from dray.cli.input.options import gates_option, output_option
from dray.gates import GateSet
from dray.manifests import to_json

_DEFAULT_WIDTH = 200
"""Columns without a terminal: no line is broken."""
_MIN_TABLE_WIDTH = 150
"""On a narrower terminal names would be broken; there, gates are listed as paragraphs."""


@click.command("gates")
@gates_option
@output_option
def command(gates: GateSet, output: str) -> int:
    """Show the feature gates: stage, default, current state, and what they require."""
    if output == "json":
        click.echo(to_json([{"gates": [_build_document(gate, on) for gate, on in gates]}]), nl=False)
    else:
        _print_table(gates)
    return 0


def _build_document(gate: Any, on: bool) -> dict[str, Any]:
    return {
        "name": gate.name,
        "stage": gate.stage.value,
        "default": gate.default,
        "now": on,
        "requires": list(gate.requires),
        "about": gate.about,
    }


def _print_table(gates: GateSet) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else _DEFAULT_WIDTH, highlight=False)
    if console.width < _MIN_TABLE_WIDTH:
        for line in render_stacked(gates, console.width):
            click.echo(line)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "stage", "default", "now", "requires", "about"):
        table.add_column(title, no_wrap=title in ("name", "stage"), overflow="fold")
    for gate, on in gates:
        words = (
            gate.name,
            gate.stage.value,
            _format_switch(gate.default),
            _format_switch(on),
            ", ".join(gate.requires),
            gate.about,
        )
        table.add_row(*(Text(word) for word in words), style=None if on == gate.default else "bold")
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def render_stacked(gates: GateSet, width: int) -> Iterator[str]:
    """Render the gates for a narrow terminal: the state of each, and its description below."""
    for gate, on in gates:
        changed = "" if on == gate.default else f", {_format_switch(gate.default)} by default"
        yield f"{gate.name} ({gate.stage.value}): {_format_switch(on)}{changed}"
        needs = f"; requires {', '.join(gate.requires)}" if gate.requires else ""
        yield textwrap.fill(gate.about + needs, width, initial_indent="  ", subsequent_indent="  ")


def _format_switch(on: bool) -> str:
    return "on" if on else "off"
