"""`dray controller`: runs the controllers for any Kubernetes API server."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.commands.services.standalone import run_standalone_service, standalone_options


@click.command("controller", short_help="Create and release claims, for any Kubernetes API server")
@click.option(
    "--upkeep/--no-upkeep",
    default=False,
    show_default=True,
    help="Also do what kube-controller-manager does elsewhere: default accounts, lost nodes and their pods.",
)
@click.option(
    "--node-silence",
    type=click.FloatRange(min=1),
    default=40.0,
    show_default=True,
    metavar="SECONDS",
    help="With --upkeep: a node without a heartbeat for so long is unreachable. Agents send one every 10 s.",
)
@click.option(
    "--claims",
    type=click.Choice(["auto", "always"]),
    default="auto",
    show_default=True,
    help="auto: leave claims to kube-controller-manager while it holds its lease. always: keep them, for a "
    "kube-controller-manager that runs without its claim controller.",
)
@standalone_options
def command(upkeep: bool, node_silence: float, claims: str, **chosen: Any) -> int:
    """Create claims from templates, and release and delete those that pods no longer need.

    Works with dray and with any other Kubernetes API server, through its API alone; deploy/controller.yaml
    has the permissions it needs. Of several processes one leads and the others are on standby. Exit code 2
    when the server cannot be reached or permissions are missing.
    """
    from dataclasses import replace

    from dray.cluster.services.components import build_controllers
    from dray.cluster.services.permissions import CONTROLLER_PERMISSIONS, UPKEEP_RULES

    permissions = (
        replace(CONTROLLER_PERMISSIONS, rules=(*CONTROLLER_PERMISSIONS.rules, *UPKEEP_RULES))
        if upkeep
        else CONTROLLER_PERMISSIONS
    )
    return run_standalone_service(
        permissions,
        build_controllers,
        chosen,
        upkeep=upkeep,
        node_silence=node_silence,
        stand_back=claims == "auto",
    )
