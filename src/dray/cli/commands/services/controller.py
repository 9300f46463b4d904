"""`dray controller`: keep the claims of pods, beside any Kubernetes API server."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.commands.services.standalone import run_standalone_service, standalone_options


@click.command("controller", short_help="Keep the claims of pods, beside any Kubernetes API server")
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
    help="With --upkeep: a node is lost that gave no sign of life for so long. Agents give one every ten.",
)
@standalone_options
def command(upkeep: bool, node_silence: float, **chosen: Any) -> int:
    """Make claims from templates, and give back and delete what pods no longer need.

    Works for dray and for any other Kubernetes API server, through its API alone; deploy/controller.yaml has
    the rights it needs. Of several, one works and the others stand by; one that lost its leadership stands
    by again. Exit code 2 when the server cannot be reached or rights are missing.
    """
    from dataclasses import replace

    from dray.cluster.services.components import build_controllers
    from dray.cluster.services.permissions import CONTROLLER_PERMISSIONS, UPKEEP_RULES

    rights = (
        replace(CONTROLLER_PERMISSIONS, rules=(*CONTROLLER_PERMISSIONS.rules, *UPKEEP_RULES))
        if upkeep
        else CONTROLLER_PERMISSIONS
    )
    return run_standalone_service(rights, build_controllers, chosen, upkeep=upkeep, node_silence=node_silence)
