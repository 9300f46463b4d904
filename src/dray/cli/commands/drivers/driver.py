"""`dray driver`: for those who write drivers."""

from __future__ import annotations

import click

from dray.cli.commands.drivers import driver_conformance, driver_new


@click.group("driver", no_args_is_help=True)
def command() -> None:
    """Start a driver, and hold it against what agents expect of one."""


command.add_command(driver_new.command)
command.add_command(driver_conformance.command)
