"""`dray scheduler`: find nodes and devices for the pods of any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dray.cli.commands.services.standalone import run_standalone_service, standalone_options
from dray.cli.input.options import search_timeout_option


@click.command("scheduler", short_help="Schedule pods with claims, beside any Kubernetes API server")
@click.option(
    "--scheduler-name",
    "name",
    default="",
    metavar="NAME",
    help="Schedule the pods whose `schedulerName` is this, over --config; otherwise `default-scheduler`. "
    "Beside another scheduler, choose a name of your own, for example `dray`.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A profile: its name, the plugins and what each weighs.",
)
@search_timeout_option
@standalone_options
def command(name: str, file: Path | None, search_timeout: float, **chosen: Any) -> int:
    """Give pods their nodes, and their claims the devices there.

    Works for dray and for any other Kubernetes API server, through its API alone; deploy/scheduler.yaml has
    the rights it needs. Of several, one works and the others stand by; one that lost its leadership stands
    by again. Exit code 2 when the server cannot be reached or rights are missing.
    """
    from dray.cluster.services.components import build_scheduler, load_profile
    from dray.cluster.services.permissions import SCHEDULER_PERMISSIONS

    profile = load_profile(file, name)
    return run_standalone_service(
        SCHEDULER_PERMISSIONS, build_scheduler, chosen, profile=profile, search_seconds=search_timeout
    )
