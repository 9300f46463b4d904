"""`dray free`: the devices that can be had now, in files or in a running cluster."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import click

from dray.cli.exit_codes import EXIT_YES
from dray.cli.input.cluster_files import AMONG_MANIFESTS, check_node, files_option, load_cluster
from dray.cli.input.options import gates_option
from dray.cli.input.server_connection import ServerTarget, server_options
from dray.errors import InputError
from dray.gates import GateSet
from dray.simulation.bundle import Bundle
from dray.simulation.free_devices import DeviceFilter, FreeDevices, find_free_devices
from dray.simulation.object_reader import format_names


@click.command("free")
@files_option
@server_options
@click.option("-n", "--namespace", metavar="NAME", help="Show what is free and what this namespace holds.")
@click.option("--node", metavar="NAME", help="Show only what this node sees.")
@click.option("--driver", metavar="NAME", help="Show only the devices of this driver.")
@click.option(
    "--by",
    "attribute",
    metavar="ATTRIBUTE",
    help="Count devices by the values of an attribute: `model`, `gpu.example.com/model`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A line per pool, a line per device (wide), JSON or YAML for programs.",
)
@gates_option
def command(paths: tuple[str, ...], kubeconfig: str, context: str, **chosen: Any) -> int:
    """Show the devices that can be had now: whole, in shares, or as partitions.

    A device is free when a claim that asks for it alone would get it, by the rules of the scheduler: one
    whose counters are taken by a partition is not, nor is a tainted one. Reads files and dumps of `kubectl
    get -o yaml` (`-f`), or the server of a kubeconfig, which may be any Kubernetes API server; the role
    `dray:viewer` is enough. The exit code is 0, whether something is free or not.
    """
    server = ServerTarget(kubeconfig, context)
    options = _Options(**chosen)
    if paths and server.is_explicit:
        raise click.UsageError("either files or a server: leave `-f` or `--kubeconfig` and `--context` out")
    found, remarks = _find_in_files(paths, options) if paths else _find_on_server(server, options)
    _print_result(found, remarks, options)
    return EXIT_YES


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

    namespace: str | None
    node: str | None
    driver: str | None
    attribute: str | None
    output: str
    gates: GateSet

    @property
    def device_filter(self) -> DeviceFilter:
        return DeviceFilter(self.node, self.driver, self.namespace)


Answer = tuple[FreeDevices, tuple[str, ...]]
"""What is free, and the remarks about what was read."""


def _find_in_files(paths: tuple[str, ...], options: _Options) -> Answer:
    cluster = load_cluster(paths, options.gates, strict=False)
    _check_names(cluster.bundle, options, AMONG_MANIFESTS)
    found = find_free_devices(cluster.bundle, cluster.inventory, options.device_filter)
    return found, (*cluster.bundle.remarks, *cluster.bundle.node_remarks)


def _find_on_server(server: ServerTarget, options: _Options) -> Answer:
    from dray.allocator.feature_gates import AllocatorGateFilter
    from dray.cli.input.live_cluster import ON_SERVER, print_snapshot_remarks, read_live_input
    from dray.cluster.live.access import VIEWER_HINT, format_gaps
    from dray.simulation.file_placement import build_inventory

    snapshot = read_live_input(server, options.namespace).snapshot
    bundle = snapshot.bundle
    if not snapshot.can_list_devices:
        if not snapshot.serves_devices:
            raise InputError(bundle.remarks[0])
        raise InputError(f"no devices can be read: {format_gaps(snapshot.gaps)}; {VIEWER_HINT}")
    print_snapshot_remarks(snapshot)
    _check_names(bundle, options, ON_SERVER)
    inventory = build_inventory(bundle, AllocatorGateFilter(options.gates))
    return find_free_devices(bundle, inventory, options.device_filter), bundle.remarks


def _check_names(bundle: Bundle, options: _Options, where: str) -> None:
    """Raise `InputError` for a node or driver that does not exist."""
    check_node(bundle, options.node, where)
    drivers = sorted({each.spec.driver for each in bundle.slices})
    if options.driver is not None and options.driver not in drivers:
        names = format_names(drivers) or "none"
        raise InputError(f"no slice of driver `{options.driver}` is {where}; drivers are {names}")


def _print_result(found: FreeDevices, remarks: tuple[str, ...], options: _Options) -> None:
    from dray.cli.commands.simulation import free_report

    if options.attribute is not None:
        groups = free_report.group_by_attribute(found, options.attribute)
        if not groups and any(pool.devices for pool in found.pools):
            known = format_names(free_report.list_attributes(found), 8) or "none"
            raise InputError(f"no device has an attribute `{options.attribute}`; attributes are {known}")
    if options.output in ("json", "yaml"):
        from dray.manifests import to_json, to_yaml

        document = free_report.build_document(found, remarks, options.attribute)
        click.echo(to_json([document]) if options.output == "json" else to_yaml([document]), nl=False)
        return
    width = shutil.get_terminal_size((0, 0)).columns
    if options.attribute is not None:
        lines = free_report.render_groups(found, options.attribute)
    elif options.output == "wide":
        lines = free_report.render_devices(found)
    else:
        lines = free_report.render_pools(found, width)
    for line in lines:
        click.echo(line)
