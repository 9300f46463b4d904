"""`dray doctor`: verifies stored data, and repairs the ledger."""

from __future__ import annotations

import click

from dray.cli.commands.operations import doctor_audit, doctor_ledger, doctor_restore


@click.group("doctor", no_args_is_help=True)
def command() -> None:
    """Verify stored data: the ledger, the audit log, and the state after a restore."""


command.add_command(doctor_audit.command)
command.add_command(doctor_ledger.command)
command.add_command(doctor_restore.command)
