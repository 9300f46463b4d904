"""`dray doctor`: verifies stored data and nodes, and repairs the ledger."""

from __future__ import annotations

import click

from dray.cli.commands.operations import doctor_audit, doctor_ledger, doctor_node, doctor_restore


@click.group("doctor", no_args_is_help=True)
def command() -> None:
    """Verify stored data and nodes: ledger, audit log, the state after a restore, drivers of a node."""


command.add_command(doctor_audit.command)
command.add_command(doctor_ledger.command)
command.add_command(doctor_node.command)
command.add_command(doctor_restore.command)
