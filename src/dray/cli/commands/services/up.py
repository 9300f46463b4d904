"""`dray up`: runs a whole cluster in this terminal."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dray.cli.commands.services.service_options import (
    apply_options,
    build_server_options,
    quiet_log_options,
    run_service,
    serving_options,
)
from dray.cli.input.options import gates_option, search_timeout_option
from dray.cli.output.text import sanitize_line

if TYPE_CHECKING:
    from dray.cluster.local.cluster import LocalCluster, LocalClusterOptions
    from dray.gates import GateSet

_COMPONENTS = ("server", "scheduler", "controller", "node")

_GATES = tuple(
    click.option(
        f"--{component}-feature-gates",
        default="",
        metavar="A=true,B=false",
        help=f"Set feature gates of the {component} alone, overriding --feature-gates.",
    )
    for component in _COMPONENTS
)


@click.command("up", short_help="Run a whole cluster in this terminal")
@click.option(
    "--nodes",
    type=click.IntRange(0, 64),
    default=3,
    show_default=True,
    help="Nodes with an agent and example drivers; their containers are processes of this computer.",
)
@click.option(
    "--simulated",
    type=click.IntRange(0, 10_000),
    default=0,
    show_default=True,
    metavar="COUNT",
    help="More nodes with simulated containers and devices, to try large clusters.",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "oci", "fake"]),
    default="process",
    show_default=True,
    help="The container runtime of nodes: processes, runc or crun, or none (fake).",
)
@click.option(
    "--rootfs",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The root file system of containers of the `oci` runtime.",
)
@click.option(
    "--container-user",
    type=click.Choice(["pod", "agent"]),
    default="pod",
    show_default=True,
    help="The user of containers of the `process` runtime: one of each pod's own, or the one of `dray up`.",
)
@click.option(
    "--config",
    "profile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The profile of the scheduler: its plugins and their weights.",
)
@click.option(
    "--activity/--no-activity",
    default=None,
    help="Print a line when a pod changes; by default only to a terminal.",
)
@click.option(
    "--processes",
    type=click.Choice(["auto", "1", "2", "3"]),
    default="auto",
    show_default=True,
    help="Processes of the cluster: 1; 2, scheduler and controllers in one of their own; 3, in one each; "
    "`auto` goes by the processors.",
)
@search_timeout_option
@serving_options
@quiet_log_options
@gates_option
@lambda command: apply_options(command, _GATES)
def command(**chosen: Any) -> int:
    """Run store, API server, scheduler, controllers and nodes.

    Pods get nodes, claims get devices, drivers prepare them, and containers run: as processes of this
    computer, whatever their image is, so they need a command. In a terminal, changes of pods are printed line
    by line. Everything is stored in the data directory, and continues after the next start. Ctrl-C stops it.
    """
    from dray.cluster.local.cluster import run_until_interrupted

    activity = chosen.pop("activity")
    # Nobody reads along elsewhere, and the log follows every pod and claim.
    prints = sys.stderr.isatty() if activity is None else activity
    write_line = _print_activity if prints else None
    run_service(run_until_interrupted(_build_options(chosen), _print_started, write_line))
    click.echo("stopped", err=True)
    return 0


def _print_activity(line: str) -> None:
    click.echo(sanitize_line(line), err=True)


_CLUSTER_OPTIONS = ("nodes", "simulated", "runtime", "rootfs", "container_user")


def _build_options(chosen: dict[str, Any]) -> LocalClusterOptions:
    from dray.cluster.local.cluster import LocalClusterOptions, choose_processes
    from dray.cluster.services.components import ComponentOptions, load_profile
    from dray.cluster.services.process_setup import count_processors
    from dray.gates import GateSet

    defaults: GateSet = chosen.pop("gates")
    gates = {name: GateSet.parse(chosen.pop(f"{name}_feature_gates"), defaults) for name in _COMPONENTS}
    processes = chosen.pop("processes")
    others = {name: chosen.pop(name) for name in _CLUSTER_OPTIONS}
    file, search_seconds = chosen.pop("profile"), chosen.pop("search_timeout")
    server = build_server_options({**chosen, "gates": gates["server"]})
    # Only processes that share a store need leader election.
    elect = server.store.startswith("etcd:")
    scheduler = ComponentOptions(gates["scheduler"], elect, log=server.log, search_seconds=search_seconds)
    return LocalClusterOptions(
        server,
        replace(scheduler, profile=load_profile(file)),
        ComponentOptions(gates["controller"], elect, log=server.log, upkeep=True),
        gates=gates["node"],
        processes=choose_processes(count_processors()) if processes == "auto" else int(processes),
        **others,
    )


def _print_started(cluster: LocalCluster) -> None:
    server = cluster.server
    click.echo(f"serving {server.url} from {server.store}", err=True)
    click.echo("running: server, scheduler, controllers" + _describe_pending(cluster), err=True)
    chosen = cluster.options
    if chosen.nodes:
        click.echo(
            f"nodes: {chosen.nodes}, each with the drivers gpu.example.com and nic.example.com", err=True
        )
    if chosen.simulated:
        click.echo(f"simulated nodes: {chosen.simulated}", err=True)
    click.echo("use it with:", err=True)
    click.echo(f"  export KUBECONFIG={server.kubeconfig.resolve()}")
    click.echo("  kubectl get nodes,deviceclasses,resourceslices", err=True)
    click.echo("  kubectl dray status", err=True)
    click.echo("  kubectl dray explain pod/NAME", err=True)


def _describe_pending(cluster: LocalCluster) -> str:
    return f"; not ready yet: {', '.join(cluster.pending_services)}" if cluster.pending_services else ""
