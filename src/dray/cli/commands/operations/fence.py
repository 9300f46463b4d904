"""`dray fence node`: give the devices of a lost node free for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from dray.cli.app import NO, YES
from dray.cli.input.server_connection import done, reached, server_options
from dray.cli.output.text import flat

if TYPE_CHECKING:
    from dray.claims.node_loss import Kept
    from dray.cluster.live.fencing import Fencing, Found

SHOWN = 20
"""So many pods and devices are named before the question."""
SOON = 30.0
"""Seconds in which controllers have released the claims of pods that were removed."""


@click.group("fence", no_args_is_help=True)
def command() -> None:
    """Declare that something lost does no harm any more."""


@command.command("node")
@click.argument("name")
@server_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    default=SOON,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How long to wait until the claims of its pods are released.",
)
def node(name: str, kubeconfig: str, context: str, yes: bool, timeout: float) -> int:
    """Declare that node NAME uses none of its devices any more, and let others have them.

    Do this only when the node is switched off, cut off or wiped: two pods that use one device at once can
    destroy each other's work. Puts the taint `node.kubernetes.io/out-of-service` on the node, so that no pod
    comes to it; removes its pods without asking it; deletes its preparations; and waits until the ledger
    shows what became free. Ends with 1 when something that should be free is not. `dray unfence node NAME`
    takes the node back into service.
    """
    return done(_fenced(name, kubeconfig, context, yes=yes, timeout=timeout))


async def _fenced(name: str, kubeconfig: str, context: str, *, yes: bool, timeout: float) -> int:
    from dray.cluster.live.fencing import Fencing

    async with reached(kubeconfig, context) as (client, _):
        fencing = Fencing(client, name)
        found = await fencing.find()
        if found.node is None and not found.pods and not found.preparations:
            _say(f"there is no node `{name}`, and nothing is prepared on one of that name")
            return NO
        for line in _what(name, found):
            _say(line)
        if not yes:
            click.confirm(f"Is node {name} switched off or cut off from all devices?", abort=True, err=True)
        return await _carried_out(fencing, name, timeout)


async def _carried_out(fencing: Fencing, name: str, timeout: float) -> int:
    known = await fencing.close()
    # What was found before the question may be old, and from here on no pod comes.
    found = await fencing.find()
    await fencing.remove(found.pods)
    await fencing.let_go(found.preparations)
    if known:
        await fencing.note()
    kept = await fencing.settle(found.stakes, timeout, _Patience(timeout).tell)
    devices, held = ({each.device for each in some} for some in (found.stakes, (k.stake for k in kept)))
    for device in sorted(devices - held):
        click.echo(flat(f"{device} is free"))
    for each in kept:
        click.echo(flat(f"{each.stake.device} stays with claim {each.stake.claim}: {each.why}"))
    for pod in fencing.left:
        keepers = ", ".join(pod.metadata.finalizers)
        _say(f"pod {pod.metadata.namespace}/{pod.metadata.name} is kept by its finalizers: {keepers}")
    counts = (
        f"{_many(fencing.removed, 'pod')} removed, {_many(len(found.preparations), 'preparation')} deleted"
    )
    _say(f"fenced node {name}: {counts}, {_many(len(devices - held), 'device')} free")
    if known:
        _say(f"hint: when it is back, `dray unfence node {name}` lets pods run on it again")
    return YES if all(each.rightly for each in kept) else NO


def _what(name: str, found: Found) -> Iterator[str]:
    from dray.placement.node_health import ready_of

    devices = {each.device for each in found.stakes}
    counts = f"{_many(len(found.pods), 'pod')}, {_many(len(found.preparations), 'preparation')}"
    yield f"node {name} has {counts} and {_many(len(devices), 'device')}"
    yield from _some([f"  pod {pod.metadata.namespace}/{pod.metadata.name}" for pod in found.pods])
    words = {True: "quarantined for", False: "held by"}
    yield from _some(
        [f"  {each.device}: {words[each.quarantined]} claim {each.claim}" for each in found.stakes]
    )
    ready = None if found.node is None else ready_of(found.node)
    if ready is not None and ready.status == "True":
        yield f"warning: node {name} is ready as far as anybody knows; what runs there may use its devices"


class _Patience:
    """Tells somebody who waits what for, now and then."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told = ""

    def tell(self, waiting: Sequence[Kept]) -> None:
        claims = sorted({each.stake.claim for each in waiting})
        what = f"{_many(len(claims), 'claim')} to be released: {', '.join(claims[:3])}"
        if what != self._told:
            _say(f"waiting up to {self._seconds:g} seconds for {what}{', ...' if len(claims) > 3 else ''}")
        self._told = what


def _some(lines: list[str]) -> Iterator[str]:
    yield from lines[:SHOWN]
    if len(lines) > SHOWN:
        yield f"  and {len(lines) - SHOWN} more"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _say(line: str) -> None:
    click.echo(flat(line), err=True)
