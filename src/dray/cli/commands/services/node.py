"""`dray node`: runs the agent of a node, for any Kubernetes API server."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.commands.services.service_options import build_log, log_options, run_service
from dray.cli.exit_codes import EXIT_YES
from dray.cli.input.options import gates_option
from dray.cli.input.server_connection import server_options

if TYPE_CHECKING:
    from dray.client.config.client_config import ClientConfig
    from dray.cluster.services.node_agents import NodeOptions
    from dray.cluster.services.standalone import StartedService

_SHORTEST_SOCKET_NAME = "0123456789abcdef.sock"
"""A socket whose name was shortened to a digest (see `wire.unix_sockets`)."""
_DIRECTORY = click.Path(path_type=Path, file_okay=False)


@click.command("node", short_help="Run the agent of a node")
@click.option("--name", default="", metavar="NAME", help="The node's name.  [default: the host name]")
@server_options
@click.option(
    "--root",
    type=_DIRECTORY,
    default="dray-node",
    show_default=True,
    help="The directory of the agent's state: its checkpoint, containers and their logs.",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "oci", "fake"]),
    default="process",
    show_default=True,
    help="The container runtime: processes of this machine, runc or crun, or none (fake).",
)
@click.option("--rootfs", type=_DIRECTORY, help="The root file system of containers of the `oci` runtime.")
@click.option(
    "--container-user",
    type=click.Choice(["pod", "agent"]),
    default="pod",
    show_default=True,
    help="The user of containers of the `process` runtime: one of each pod's own, or that of the agent.",
)
@click.option(
    "--oci-runtime",
    "program",
    default="",
    metavar="PROGRAM",
    help="The program of the `oci` runtime.  [default: runc or crun]",
)
@click.option(
    "--plugins-registry",
    "registry",
    type=_DIRECTORY,
    help="Where drivers register, as kubelet plugins do.  [default: plugins_registry in --root]",
)
@click.option(
    "--plugins", type=_DIRECTORY, help="The directory that sockets of drivers must be in.  [default: any]"
)
@click.option(
    "--cdi-dir",
    "cdi",
    type=_DIRECTORY,
    multiple=True,
    help="A directory of CDI files; later ones take precedence.  [default: /etc/cdi, /var/run/cdi]",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the node.")
@click.option(
    "--capacity",
    multiple=True,
    metavar="cpu=4",
    help="The capacity of the node, instead of that of the machine.",
)
@click.option(
    "--max-pods", type=click.IntRange(0), default=110, show_default=True, help="The maximum number of pods."
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="The node's address: the one it listens on, and that of its pods.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=10250,
    show_default=True,
    help="The port that serves logs; 0 takes any free one.",
)
@click.option(
    "--static-pods",
    type=_DIRECTORY,
    help="Run the pods in the files of this folder; they cannot have claims.",
)
@click.option(
    "--stop-pods",
    is_flag=True,
    help="Stop containers when the agent stops; the next agent starts them. Otherwise they keep running.",
)
@click.option(
    "--metrics-address",
    default="",
    metavar="HOST:PORT",
    help="Serve /metrics, /healthz and /readyz at this address.  [default: not served]",
)
@log_options
@gates_option
def command(**chosen: Any) -> int:
    """Run the pods that are bound to a node.

    Drivers register by a socket in a directory, as with a kubelet. Claims of a pod are prepared before its
    containers start and unprepared after the last one that uses them has ended. Containers keep running when
    the agent stops, and the next agent takes them over. A driver that never comes back blocks the end of pods
    that have its devices; annotate such a pod with `dray.dev/abandon-devices=true` to let it end. Exit code 2
    when the server cannot be reached or permissions are missing.
    """
    from dray.client.config.kubeconfig import load_client_config
    from dray.cluster.services.node_agents import build_agent
    from dray.cluster.services.permissions import NODE_PERMISSIONS
    from dray.cluster.services.standalone import StandaloneOptions, run_standalone

    kubeconfig = chosen.pop("kubeconfig")
    config = load_client_config(kubeconfig, chosen.pop("context"))
    metrics = chosen.pop("metrics_address")
    options = replace(
        _build_options(chosen), authority=config.ca, private=_list_secret_files(kubeconfig, config)
    )
    _check_socket_paths(options)
    standalone_options = StandaloneOptions(
        _store_renewed_certificate(config, options.root),
        replace(NODE_PERMISSIONS, node=options.name),
        leader_elect=False,
        metrics_address=metrics,
        log=options.log,
    )
    run_service(
        run_standalone(
            standalone_options,
            lambda client: build_agent(client, options),
            lambda started: _print_started(options, started),
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


def _store_renewed_certificate(config: ClientConfig, root: Path) -> ClientConfig:
    """Return a configuration with which a renewed client certificate is stored in the root."""
    from dray.client.config.client_config import FileCredentialProvider
    from dray.client.config.credential_files import RenewedCredential
    from dray.cluster.services.certificate_report import CLIENT_FILE

    if not isinstance(config.credential_provider, FileCredentialProvider):
        return config
    renewed = RenewedCredential(root.resolve() / CLIENT_FILE, config.credential_provider.source)
    return replace(config, credential_provider=FileCredentialProvider(renewed))


def _list_secret_files(kubeconfig: Path | str | None, config: ClientConfig) -> tuple[Path, ...]:
    """List the files with the credentials of the agent, which containers must not see."""
    from dray.client.config.client_config import FileCredentialProvider

    words = [str(kubeconfig)] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    if isinstance(config.credential_provider, FileCredentialProvider):
        words += config.credential_provider.source.secret_files
    return tuple(Path(word) for word in words if word)


def _check_socket_paths(options: NodeOptions) -> None:
    """Raise an error when the registry's socket paths are too long for any driver."""
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


def _print_started(options: NodeOptions, started: StartedService) -> None:
    version = f" ({started.version})" if started.version else ""
    registry = options.registry or options.root / "plugins_registry"
    click.echo(f"node {options.name} for {started.server}{version}", err=True)
    click.echo(f"drivers register in {registry}", err=True)
    if started.metrics:
        click.echo(f"metrics at http://{started.metrics}/metrics", err=True)
