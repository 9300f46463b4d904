"""`dray doctor`: proof that what is kept agrees with itself, and repair where it does not."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

import click

CHECKS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "audit": ("dray.cli.doctor_audit", "Walk along the chain of an audit log"),
        "ledger": ("dray.cli.doctor_ledger", "Compare the device ledger with the claims"),
    }
)
"""Every check: the module whose `command` it is, and what it does in a line."""


class _Checks(click.Group):
    """A group that imports a check when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(CHECKS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        row = CHECKS.get(name)
        if row is None:
            return None
        command: click.Command = importlib.import_module(row[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Checks"):
            formatter.write_dl([(name, about) for name, (_, about) in CHECKS.items()])


@click.group("doctor", cls=_Checks, no_args_is_help=True)
def command() -> None:
    """Prove that what is kept agrees with itself."""
