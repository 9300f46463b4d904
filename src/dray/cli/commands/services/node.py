"""`dray node`: the agent of a node, beside any Kubernetes API server."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.app import EXIT_YES
from dray.cli.commands.services.service_options import build_log, log_options, run_service
from dray.cli.input.options import gates_option
from dray.cli.input.server_connection import server_options

if TYPE_CHECKING:
    from dray.cluster.services.node_agents import NodeOptions
    from dray.cluster.services.standalone import StartedService

_SHORTEST_SOCKET_NAME = "0123456789abcdef.sock"
"""A socket whose name gave way to a digest of it (see `wire.sockets`)."""
_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.command("node", short_help="Run the pods of a node, and have their devices prepared")
@click.option("--name", default="", metavar="NAME", help="The node's name; the host's unless given.")
@server_options
@click.option(
    "--root",
    type=_DIRECTORY,
    default="dray-node",
    show_default=True,
    help="Where the agent keeps what must survive it: its checkpoint, containers and their logs.",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "oci", "fake"]),
    default="process",
    show_default=True,
    help="How containers run: as processes of this machine, by runc or crun, or not at all.",
)
@click.option("--rootfs", type=_DIRECTORY, help="The files that containers of the `oci` runtime see.")
@click.option("--oci-runtime", "program", default="", metavar="PROGRAM", help="runc, crun or alike.")
@click.option(
    "--plugins-registry",
    "registry",
    type=_DIRECTORY,
    help="Where drivers register, as kubelet plugins do; `plugins_registry` in --root unless given.",
)
@click.option(
    "--plugins", type=_DIRECTORY, help="Where the sockets of drivers must be; anywhere unless given."
)
@click.option(
    "--cdi-dir",
    "cdi",
    type=_DIRECTORY,
    multiple=True,
    help="Where CDI files are, later ones first; /etc/cdi and /var/run/cdi unless given. Several times.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the node.")
@click.option(
    "--capacity",
    multiple=True,
    metavar="cpu=4",
    help="What the node offers, in place of what the machine has.",
)
@click.option(
    "--max-pods", type=click.IntRange(0), default=110, show_default=True, help="So many pods at most."
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The node's address: where it listens for the server, and that of its pods.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=10250,
    show_default=True,
    help="The port on which it answers for logs; 0 takes any that is free.",
)
@click.option(
    "--static-pods",
    type=_DIRECTORY,
    help="Run the pods that files in this folder describe; they cannot have claims.",
)
@click.option(
    "--stop-pods",
    is_flag=True,
    help="Stop containers when the agent stops; the next one starts them again. They run on otherwise.",
)
@click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Tell metrics at /metrics and health at /healthz and /readyz there; nowhere unless given.",
)
@log_options
@gates_option
def command(**chosen: Any) -> int:
    """Run the pods that are bound to a node.

    Drivers register by a socket in a directory, as with a kubelet. Claims of a pod are prepared before its
    containers start and given back after the last one that uses them has ended. Containers run on when the
    agent stops, and are taken up again by the next one. A driver that will never come back blocks the end of
    pods that have its devices; annotate such a pod with `dray.dev/abandon-devices=true` to let it go.
    Exit code 2 when the server cannot be reached or rights are missing.
    """
    from dray.client.config.kubeconfig import load_client_config
    from dray.cluster.services.node_agents import build_agent
    from dray.cluster.services.permissions import NODE_PERMISSIONS
    from dray.cluster.services.standalone import StandaloneOptions, run_standalone

    access = load_client_config(chosen.pop("kubeconfig"), chosen.pop("context"))
    metrics = chosen.pop("metrics_address")
    options = replace(_build_options(chosen), authority=access.ca)
    _check_socket_paths(options)
    place = StandaloneOptions(
        access, replace(NODE_PERMISSIONS, node=options.name), leader_elect=False, metrics_address=metrics
    )
    run_service(
        run_standalone(
            place,
            lambda client: build_agent(client, options),
            lambda working: _print_started(options, working),
        )
    )
    click.echo("stopped", err=True)
    return EXIT_YES


def _build_options(chosen: dict[str, Any]) -> NodeOptions:
    from dray.cluster.services.node_agents import NodeOptions
    from dray.node.containers.cdi import DEFAULT_DIRECTORIES

    return NodeOptions(
        chosen.pop("name") or socket.gethostname().lower(),
        chosen.pop("root"),
        log=build_log(chosen),
        cdi=chosen.pop("cdi") or DEFAULT_DIRECTORIES,
        labels=_parse_pairs(chosen.pop("labels"), "--label"),
        capacity=_parse_pairs(chosen.pop("capacity"), "--capacity"),
        **chosen,
    )


def _check_socket_paths(options: NodeOptions) -> None:
    """Whether the paths of sockets fit where drivers register; else none ever could."""
    from dray.errors import InputError
    from dray.wire.unix_sockets import MAX_SOCKET_PATH_BYTES

    registry = (options.registry or options.root / "plugins_registry").resolve()
    length = len(os.fsencode(registry / _SHORTEST_SOCKET_NAME))
    if length > MAX_SOCKET_PATH_BYTES:
        raise InputError(
            f"no driver can register in `{registry}`: the path of a socket may have "
            f"{MAX_SOCKET_PATH_BYTES} bytes, "
            f"and would have {length} there; choose a shorter --root or --plugins-registry"
        )


def _parse_pairs(words: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        for pair in word.split(","):
            name, equals, value = pair.partition("=")
            if not name or not equals:
                raise click.UsageError(f"{option} `{pair}`: expected NAME=VALUE")
            pairs[name.strip()] = value.strip()
    return pairs


def _print_started(options: NodeOptions, working: StartedService) -> None:
    version = f" ({working.version})" if working.version else ""
    registry = options.registry or options.root / "plugins_registry"
    click.echo(f"node {options.name} for {working.server}{version}", err=True)
    click.echo(f"drivers register in {registry}", err=True)
    if working.metrics:
        click.echo(f"metrics at http://{working.metrics}/metrics", err=True)
