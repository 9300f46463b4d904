"""`dray driver`: commands for authors of drivers."""

from __future__ import annotations

import click

from dray.cli.commands.drivers import driver_conformance, driver_new


@click.group("driver", no_args_is_help=True)
def command() -> None:
    """Start a new driver, and check one for conformance."""


command.add_command(driver_new.command)
command.add_command(driver_conformance.command)
