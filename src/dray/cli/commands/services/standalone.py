"""What `dray scheduler` and `dray controller` share: options, how they start, how they end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dray.cli.app import YES
from dray.cli.commands.services.service_options import chosen_log, log_options, run, with_options
from dray.cli.input.options import gates_option
from dray.cli.input.server_connection import server_options

if TYPE_CHECKING:
    from dray.client.client import Client
    from dray.cluster.services.components import Component
    from dray.cluster.services.permissions import Rights
    from dray.cluster.services.standalone import Working
    from dray.cluster.services.supervisor import Service

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


def beside_options(command: F) -> F:
    """The options of a service that runs beside a server."""
    return with_options(command, _OPTIONS)


def stay(
    rights: Rights, make: Callable[[Client, Component], Service], chosen: dict[str, Any], **more: Any
) -> int:
    """Run a service for the server of a kubeconfig; the exit code."""
    from dray.client.config.kubeconfig import find_access
    from dray.cluster.services.components import Component, new_identity
    from dray.cluster.services.standalone import Place, alone

    rights = replace(rights, lease=chosen["lease"] or rights.lease)
    component = Component(
        chosen["gates"],
        chosen["elect"],
        chosen["identity"] or new_identity(),
        chosen_log(chosen),
        lease=rights.lease,
        **more,
    )
    place = Place(
        find_access(chosen["kubeconfig"], chosen["context"]),
        rights,
        component.elect,
        chosen["qps"],
        chosen["metrics_address"],
    )
    run(alone(place, lambda client: make(client, component), lambda working: _tell(rights, working)))
    click.echo("stopped", err=True)
    return YES


def _tell(rights: Rights, working: Working) -> None:
    version = f" ({working.version})" if working.version else ""
    click.echo(f"{rights.service} for {working.server}{version}", err=True)
    if working.metrics:
        click.echo(f"metrics at http://{working.metrics}/metrics", err=True)
