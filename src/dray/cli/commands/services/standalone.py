"""The options of `dray scheduler` and `dray controller`, and how both run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli.commands.services.service_options import apply_options, build_log, log_options, run_service
from dray.cli.exit_codes import EXIT_YES
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
        help="Work only while holding the lease, so that other processes can be on standby.",
    ),
    click.option(
        "--lease",
        default="",
        metavar="NAME",
        help="The lease to hold; schedulers of different names need different leases.",
    ),
    click.option(
        "--identity",
        default="",
        metavar="NAME",
        help="The holder of the lease.  [default: the host name and a random number]",
    ),
    click.option(
        "--metrics-address",
        default="",
        metavar="HOST:PORT",
        help="Serve /metrics, /healthz and /readyz at this address.  [default: not served]",
    ),
    click.option(
        "--qps",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="NUMBER",
        help="The maximum number of requests to the server per second; 0 is unlimited.",
    ),
    log_options,
    gates_option,
)


def standalone_options(command: F) -> F:
    """Add the options of a service that runs in its own process."""
    return apply_options(command, _OPTIONS)


def run_standalone_service(
    permissions: ServicePermissions,
    build_service: Callable[[Client, ComponentOptions], RunnableService],
    chosen: dict[str, Any],
    **more: Any,
) -> int:
    """Run a service for the server of a kubeconfig; return the exit code."""
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
    standalone = StandaloneOptions(
        load_client_config(chosen["kubeconfig"], chosen["context"]),
        permissions,
        component.leader_elect,
        chosen["qps"],
        chosen["metrics_address"],
        log=component.log,
    )
    run_service(
        run_standalone(
            standalone,
            lambda client: build_service(client, component),
            lambda started: print_started(permissions, started),
        )
    )
    click.echo("stopped", err=True)
    return EXIT_YES


def print_started(permissions: ServicePermissions, started: StartedService) -> None:
    """Print which server a started service works for."""
    version = f" ({started.version})" if started.version else ""
    click.echo(f"{permissions.service} for {started.server}{version}", err=True)
    if started.metrics:
        click.echo(f"metrics at http://{started.metrics}/metrics", err=True)
