"""`dray doctor`: proof that what is kept agrees with itself, and repair where it does not."""

from __future__ import annotations

import click

from dray.cli.commands.operations import doctor_audit, doctor_ledger, doctor_restore


@click.group("doctor", no_args_is_help=True)
def command() -> None:
    """Prove that what is kept agrees with itself."""


command.add_command(doctor_audit.command)
command.add_command(doctor_ledger.command)
command.add_command(doctor_restore.command)
