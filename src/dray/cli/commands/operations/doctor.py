"""`dray doctor`: verifies stored data, certificates and nodes, and repairs the ledger."""

from __future__ import annotations

import click

from dray.cli.commands.operations import (
    doctor_audit,
    doctor_certificates,
    doctor_ledger,
    doctor_node,
    doctor_restore,
)


@click.group("doctor", no_args_is_help=True)
def command() -> None:
    """Verify stored data and nodes: ledger, audit log, certificates, the state after a restore, drivers of a
    node.
    """


command.add_command(doctor_audit.command)
command.add_command(doctor_certificates.command)
command.add_command(doctor_ledger.command)
command.add_command(doctor_node.command)
command.add_command(doctor_restore.command)
