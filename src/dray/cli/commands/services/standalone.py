"""What `dray scheduler` and `dray controller` share: options, how they start, how they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli.app import EXIT_YES
from dray.cli.commands.services.service_options import apply_options, build_log, log_options, run_service
from dray.cli.input.options import gates_option
from dray.cli.input.server_connection import server_options

if TYPE_CHECKING:
    from dray.client.client import Client
    from dray.cluster.services.components import ComponentOptions
    from dray.cluster.services.permissions import ServicePermissions
    from dray.cluster.services.standalone import StartedService
    from dray.cluster.services.supervisor import RunnableService

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    server_options,
    click.option(
        "--leader-elect/--no-leader-elect",
        "elect",
        default=True,
        show_default=True,
        help="Work only while holding the lease, so that others may stand by.",
    ),
    click.option(
        "--lease",
        default="",
        metavar="NAME",
        help="The lease to hold; another one for each scheduler of another name.",
    ),
    click.option(
        "--identity", default="", metavar="NAME", help="Who signs the lease; the host's name and a number."
    ),
    click.option(
        "--metrics-address",
        default="",
        metavar="HOST:PORT",
        help="Tell metrics at /metrics and health at /healthz and /readyz there; nowhere unless given.",
    ),
    click.option(
        "--qps",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="NUMBER",
        help="At most so many requests to the server in a second; 0 is as many as it takes.",
    ),
    log_options,
    gates_option,
)


def standalone_options(command: F) -> F:
    """The options of a service that runs beside a server."""
    return apply_options(command, _OPTIONS)


def run_standalone_service(
    permissions: ServicePermissions,
    build_service: Callable[[Client, ComponentOptions], RunnableService],
    chosen: dict[str, Any],
    **more: Any,
) -> int:
    """Run a service for the server of a kubeconfig; the exit code."""
    from dray.client.config.kubeconfig import load_client_config
    from dray.cluster.services.components import ComponentOptions, generate_identity
    from dray.cluster.services.standalone import StandaloneOptions, run_standalone

    permissions = replace(permissions, lease_name=chosen["lease"] or permissions.lease_name)
    component = ComponentOptions(
        chosen["gates"],
        chosen["elect"],
        chosen["identity"] or generate_identity(),
        build_log(chosen),
        lease_name=permissions.lease_name,
        **more,
    )
    place = StandaloneOptions(
        load_client_config(chosen["kubeconfig"], chosen["context"]),
        permissions,
        component.leader_elect,
        chosen["qps"],
        chosen["metrics_address"],
    )
    run_service(
        run_standalone(
            place,
            lambda client: build_service(client, component),
            lambda working: _print_started(permissions, working),
        )
    )
    click.echo("stopped", err=True)
    return EXIT_YES


def _print_started(permissions: ServicePermissions, started: StartedService) -> None:
    version = f" ({started.version})" if started.version else ""
    click.echo(f"{permissions.service} for {started.server}{version}", err=True)
    if started.metrics:
        click.echo(f"metrics at http://{started.metrics}/metrics", err=True)
