"""`dray scheduler`: schedules pods for any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dray.cli.commands.services.standalone import run_standalone_service, standalone_options
from dray.cli.input.options import search_timeout_option


@click.command("scheduler", short_help="Schedule pods with claims, for any Kubernetes API server")
@click.option(
    "--scheduler-name",
    "name",
    default="",
    metavar="NAME",
    help="Schedule the pods with this `schedulerName`, overriding --config; otherwise `default-scheduler`. "
    "Beside another scheduler, choose a name of your own, for example `dray`.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A profile: its name, plugins and their weights.",
)
@search_timeout_option
@standalone_options
def command(name: str, file: Path | None, search_timeout: float, **chosen: Any) -> int:
    """Assign pods to nodes, and devices there to their claims.

    Works with dray and with any other Kubernetes API server, through its API alone; deploy/scheduler.yaml has
    the permissions it needs. Of several processes one leads and the others are on standby. Exit code 2 when
    the server cannot be reached or permissions are missing.
    """
    from dray.cluster.services.components import build_scheduler, load_profile
    from dray.cluster.services.permissions import SCHEDULER_PERMISSIONS

    profile = load_profile(file, name)
    return run_standalone_service(
        SCHEDULER_PERMISSIONS, build_scheduler, chosen, profile=profile, search_seconds=search_timeout
    )
