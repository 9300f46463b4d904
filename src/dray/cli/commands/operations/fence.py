"""`dray fence node`: free the devices of a lost node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from dray.cli.exit_codes import EXIT_NO, EXIT_YES
from dray.cli.input.server_connection import connect_to_server, run_to_completion, server_options
from dray.cli.output.text import format_count, sanitize_line

if TYPE_CHECKING:
    from dray.claims.node_loss import RetainedDevice
    from dray.cluster.live.fencing import NodeFencer, NodeHoldings

MAX_SHOWN = 20
"""So many pods and devices are listed before the question."""
DEFAULT_TIMEOUT_SECONDS = 30.0
"""Seconds in which the controllers should have released the claims of removed pods."""


@click.group("fence", no_args_is_help=True)
def command() -> None:
    """Declare a lost node out of service."""


@command.command("node")
@click.argument("name")
@server_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--timeout",
    default=DEFAULT_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How long to wait until the claims of its pods are released.",
)
def node(name: str, kubeconfig: str, context: str, yes: bool, timeout: float) -> int:
    """Declare that node NAME uses none of its devices any more, and free them for others.

    Do this only when the node is switched off, cut off or wiped: two pods that use one device at once can
    destroy each other's work. This adds the taint `node.kubernetes.io/out-of-service` to the node, so that no
    pod is placed there; deletes its pods without waiting for it; deletes its preparations; and waits until
    the ledger shows the devices as free. Exit code 1 when something that should be free is not. `dray unfence
    node NAME` takes the node back into service.
    """
    return run_to_completion(_fence_node(name, kubeconfig, context, yes=yes, timeout=timeout))


async def _fence_node(name: str, kubeconfig: str, context: str, *, yes: bool, timeout: float) -> int:
    from dray.cluster.live.fencing import NodeFencer

    async with connect_to_server(kubeconfig, context) as (client, _):
        fencer = NodeFencer(client, name)
        found = await fencer.inspect_node()
        if found.node is None and not found.pods and not found.preparations:
            _print_message(f"there is no node `{name}`, and nothing is prepared on one of that name")
            return EXIT_NO
        for line in _describe_holdings(name, found):
            _print_message(line)
        if not yes:
            click.confirm(f"Is node {name} switched off or cut off from all devices?", abort=True, err=True)
        return await _execute_fencing(fencer, name, timeout)


async def _execute_fencing(fencer: NodeFencer, name: str, timeout: float) -> int:
    known = await fencer.add_taint()
    # The state before the question may be old; from here on no pod is placed on the node.
    found = await fencer.inspect_node()
    await fencer.remove_pods(found.pods)
    await fencer.delete_preparations(found.preparations)
    if known:
        await fencer.annotate_node()
    kept = await fencer.wait_until_free(found.stakes, timeout, _WaitingNotice(timeout).report)
    devices, retained = ({each.device for each in some} for some in (found.stakes, (k.claimed for k in kept)))
    for device in sorted(devices - retained):
        click.echo(sanitize_line(f"{device} is free"))
    for each in kept:
        click.echo(sanitize_line(f"{each.claimed.device} stays with claim {each.claimed.claim}: {each.why}"))
    for pod in fencer.remaining_pods:
        finalizers = ", ".join(pod.metadata.finalizers)
        _print_message(
            f"pod {pod.metadata.namespace}/{pod.metadata.name} is kept by its finalizers: {finalizers}"
        )
    counts = (
        f"{format_count(fencer.removed_count, 'pod')} removed, "
        f"{format_count(len(found.preparations), 'preparation')} deleted"
    )
    _print_message(f"fenced node {name}: {counts}, {format_count(len(devices - retained), 'device')} free")
    if known:
        _print_message(f"hint: when it is back, `dray unfence node {name}` lets pods run on it again")
    return EXIT_YES if all(each.expected for each in kept) else EXIT_NO


def _describe_holdings(name: str, found: NodeHoldings) -> Iterator[str]:
    from dray.placement.node_health import find_ready_condition

    devices = {each.device for each in found.stakes}
    counts = f"{format_count(len(found.pods), 'pod')}, {format_count(len(found.preparations), 'preparation')}"
    yield f"node {name} has {counts} and {format_count(len(devices), 'device')}"
    yield from _limit_lines([f"  pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in found.pods])
    words = {True: "quarantined for", False: "held by"}
    yield from _limit_lines(
        [f"  {each.device}: {words[each.quarantined]} claim {each.claim}" for each in found.stakes]
    )
    ready = None if found.node is None else find_ready_condition(found.node)
    if ready is not None and ready.status == "True":
        yield f"warning: node {name} is reported as ready; its pods may still use its devices"


class _WaitingNotice:
    """Prints what the command waits for, when that changes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last_notice = ""

    def report(self, waiting: Sequence[RetainedDevice]) -> None:
        claims = sorted({each.claimed.claim for each in waiting})
        what = f"{format_count(len(claims), 'claim')} to be released: {', '.join(claims[:3])}"
        if what != self._last_notice:
            _print_message(
                f"waiting up to {self._seconds:g} seconds for {what}{', ...' if len(claims) > 3 else ''}"
            )
        self._last_notice = what


def _limit_lines(lines: list[str]) -> Iterator[str]:
    yield from lines[:MAX_SHOWN]
    if len(lines) > MAX_SHOWN:
        yield f"  and {len(lines) - MAX_SHOWN} more"


def _print_message(line: str) -> None:
    click.echo(sanitize_line(line), err=True)
