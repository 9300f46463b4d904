"""`dray fence node`: give the devices of a lost node free for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dray.cli.door import NO, YES
from dray.cli.report import clean
from dray.cli.servers import done, reached, server_options

if TYPE_CHECKING:
    from dray.client.caller import Caller
    from dray.client.client import Client

FENCED_AT = "dray.dev/fenced-at"


@click.group("fence", no_args_is_help=True)
def command() -> None:
    """Declare that something lost does no harm any more."""


@command.command("node")
@click.argument("name")
@server_options
@click.option("--yes", is_flag=True, help="Do not ask.")
def node(name: str, kubeconfig: str, context: str, yes: bool) -> int:
    """Declare that node NAME uses none of its devices any more, and let others have them.

    Do this only when the node is switched off, cut off or wiped: two pods that use one device at once can
    destroy each other's work. Deletes the node's preparations and notes the time on the Node.
    """
    return done(_fenced(name, kubeconfig, context, yes=yes))


async def _fenced(name: str, kubeconfig: str, context: str, *, yes: bool) -> int:
    async with reached(kubeconfig, context) as (client, caller):
        standing = await _standing(client, name)
        known = await _is_known(client, name)
        if not standing and not known:
            click.echo(f"there is no node `{name}`, and nothing is prepared on one of that name", err=True)
            return NO
        before = await _in_hands(caller, name)
        for line in _what(name, standing, before):
            click.echo(clean(line), err=True)
        if not yes:
            click.confirm(f"Is node {name} switched off or cut off from all devices?", abort=True, err=True)
        await _let_go(client, standing)
        if known:
            await _note(client, name)
        freed = _freed(name, before)
        for device in freed:
            click.echo(clean(f"{device} is free"))
        click.echo(
            f"fenced node {name}: {len(standing)} preparations deleted, {len(freed)} devices free", err=True
        )
        return YES


async def _standing(client: Client, name: str) -> list[Any]:
    from dray.api.preparation import Preparation

    found = await client.list(Preparation)
    return [each for each in found.items if each.spec.node_name == name]


async def _is_known(client: Client, name: str) -> bool:
    from dray.api.kinds import kind_named
    from dray.client.failures import NotFound

    nodes = kind_named("", "Node")
    assert nodes is not None
    try:
        await client.get(nodes, name)
    except NotFound:
        return False
    return True


async def _in_hands(caller: Caller, name: str) -> list[dict[str, Any]]:
    """What the ledger says the node has in its hands."""
    from dray.api.jsontext import read_json
    from dray.client.transport import Request

    reply = await caller.call(Request("GET", "/dray/ledger", {"node": name}))
    entries: list[dict[str, Any]] = read_json(reply.body)["entries"]
    return entries


def _what(name: str, standing: Sequence[Any], entries: Sequence[dict[str, Any]]) -> list[str]:
    lines = [f"node {name} has {len(standing)} preparations on {len(entries)} devices"]
    for entry in entries:
        for holder in entry["holders"]:
            state = "quarantined for" if holder["quarantined"] else "held by"
            lines.append(f"  {entry['device']}: {state} claim {holder['claim']}")
    return lines


def _freed(name: str, entries: Sequence[dict[str, Any]]) -> list[str]:
    """Devices that nobody holds once the node lets go: all holders are gone, and no other node has them."""
    return [
        entry["device"]
        for entry in entries
        if all(holder["quarantined"] and holder["nodes"] == [name] for holder in entry["holders"])
    ]


async def _let_go(client: Client, standing: Sequence[Any]) -> None:
    from dray.api.preparation import Preparation
    from dray.client.client import Deletion
    from dray.client.failures import NotFound

    for each in standing:
        try:
            await client.delete(Preparation, each.metadata.name, "", Deletion(uid=each.metadata.uid))
        except NotFound:
            continue


async def _note(client: Client, name: str) -> None:
    from dray.api.kinds import kind_named
    from dray.client.changes import MergePatch
    from dray.clock import SystemClock, timestamp

    nodes = kind_named("", "Node")
    assert nodes is not None
    when = timestamp(SystemClock().now())
    await client.patch(nodes, name, MergePatch({"metadata": {"annotations": {FENCED_AT: when}}}))
