"""`dray controller`: keep the claims of pods, beside any Kubernetes API server."""

from __future__ import annotations

from typing import Any

import click

from dray.cli.beside import beside_options, stay


@click.command("controller", short_help="Keep the claims of pods, beside any Kubernetes API server")
@beside_options
def command(**chosen: Any) -> int:
    """Make claims from templates, and give back and delete what pods no longer need.

    Works for dray and for any other Kubernetes API server, through its API alone; deploy/controller.yaml has
    the rights it needs. Of several, one works and the others stand by. Exit code 1 when leadership was lost,
    so that a supervisor starts it again; 2 when the server cannot be reached or rights are missing.
    """
    from dray.cluster.components import controllers
    from dray.cluster.rights import CONTROLLER

    return stay(CONTROLLER, controllers, chosen)
