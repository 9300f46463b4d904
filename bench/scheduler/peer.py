"""Another cluster under the same load: its address, what the load left on it, and its removal.

Theory of operation: the load starts only where nothing has the names that it uses. So whatever has them
afterwards was made by the load, and is deleted until a list shows nothing more, also when the run was
interrupted. Pods are deleted first and without a grace period, because no kubelet confirms the end of
theirs.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bench.lean import Address
from bench.processes import ProcessGroup
from bench.scheduler.load import CONFLICT, Refused, Sender, open_sender
from bench.scheduler.objects import BEFORE, CLASS, NAMESPACE, NO_CLASS, node_name, pool
from dray.client.config.client_config import ClientConfigError
from dray.client.config.kubeconfig import load_client_config
from dray.client.transports.http import build_tls_context

LONGEST_CONNECT: Final = 10.0
LONGEST_CLEANUP: Final = 180.0
CLEANUP_STEP: Final = 0.2
SHOWN: Final = 3
_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_NODE, _POOL = re.escape(node_name(0)[:-1]), re.escape(pool(0)[:-1])
NAMES: Final = {
    "/api/v1/namespaces": re.compile(f"{NAMESPACE}|{BEFORE}"),
    "/api/v1/nodes": re.compile(rf"{_NODE}\d+"),
    f"{_RESOURCES}/resourceslices": re.compile(rf"{_POOL}(countersets-|devices-)?\d+"),
    f"{_RESOURCES}/deviceclasses": re.compile(f"{CLASS}|{NO_CLASS}"),
}
"""The names that the load gives, by the path of the kind."""


class PeerError(Exception):
    """The peer cannot be measured; the message is one line."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A cluster with an API server, a scheduler and controllers of its own."""

    server: str
    address: Address
    processes: ProcessGroup | None = None
    """Its processes, if they are on this machine and are to be measured."""


async def open_peer(kubeconfig: Path, pids: tuple[int, ...] = ()) -> Peer:
    """Read a kubeconfig and check that the load can start there; raises `PeerError`."""
    try:
        config = load_client_config(str(kubeconfig))
        credential = await config.credential_provider.get_credential()
        url = urlsplit(config.server)
        tls = build_tls_context(config, credential) if url.scheme == "https" else None
    except ClientConfigError as broken:
        raise PeerError(" ".join(str(broken).split())) from None
    if tls is not None:
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the authorities of many clusters lack extensions
    headers = dict(config.headers)
    if credential.token:
        headers["authorization"] = f"Bearer {credential.token}"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    port = url.port or (443 if tls else 80)
    address = Address(url.hostname or "", port, tls, config.server_name, lines)
    peer = Peer(config.server, address, ProcessGroup(pids) if pids else None)
    _check_processes(pids)
    await refuse_leftovers(peer)
    return peer


def _check_processes(pids: tuple[int, ...]) -> None:
    for pid in pids:
        if not Path(f"/proc/{pid}").exists():
            raise PeerError(f"there is no process `{pid}` to measure")


async def refuse_leftovers(peer: Peer) -> None:
    """Raise `PeerError` if the peer does not answer or has objects with the names of the load."""
    try:
        async with asyncio.timeout(LONGEST_CONNECT), open_sender(peer.address) as sender:
            left = await list_leftovers(sender)
    except Refused as refused:
        raise PeerError(f"{peer.server} refuses the load: {refused}") from None
    except TimeoutError:
        raise PeerError(f"{peer.server} does not answer within {LONGEST_CONNECT:.0f} s") from None
    except (OSError, ValueError) as broken:
        raise PeerError(f"cannot reach {peer.server}: {' '.join(str(broken).split())}") from None
    if left:
        raise PeerError(f"{peer.server} already has {describe_leftovers(left)}; delete these first")


async def list_leftovers(sender: Sender) -> list[str]:
    """List the paths of all objects with the names of the load."""
    found: list[str] = []
    for path in NAMES:
        found += select_leftovers(path, await _list_objects(sender, path))
    return found


async def _list_objects(sender: Sender, path: str) -> list[dict[str, Any]]:
    listed = msgspec.json.decode(await sender.send("GET", path))
    return list(listed.get("items") or ())


def select_leftovers(path: str, items: list[dict[str, Any]]) -> list[str]:
    """Select the objects that have a name of the load, and return their paths."""
    names = (str(item["metadata"]["name"]) for item in items)
    return [f"{path}/{name}" for name in names if NAMES[path].fullmatch(name)]


def describe_leftovers(paths: list[str]) -> str:
    """Name a few of the objects, and count the others."""
    shown = ", ".join(f"`{'/'.join(path.split('/')[-2:])}`" for path in paths[:SHOWN])
    return f"{shown} and {len(paths) - SHOWN} more" if len(paths) > SHOWN else shown


async def clean_up(peer: Peer) -> None:
    """Delete what the load made, and wait until it is gone; raises `PeerError`."""
    left: list[str] = []
    try:
        async with asyncio.timeout(LONGEST_CLEANUP), open_sender(peer.address) as sender:
            while left := await list_leftovers(sender):
                await _delete_contents(sender)
                await sender.for_each(left, lambda path: _delete_object(sender, path))
                await asyncio.sleep(CLEANUP_STEP)
    except TimeoutError:
        what = describe_leftovers(left) if left else "objects of the load"
        raise PeerError(f"{peer.server} still has {what} after {LONGEST_CLEANUP:.0f} s") from None
    except (Refused, OSError, ValueError) as broken:
        raise PeerError(f"cannot delete what the load made on {peer.server}: {broken}") from None


async def _delete_contents(sender: Sender) -> None:
    for kind in ("/api/v1/namespaces/{}/pods", f"{_RESOURCES}/namespaces/{{}}/resourceclaims"):
        for space in (NAMESPACE, BEFORE):
            path = kind.format(space)
            objects = await _list_objects(sender, path)
            await sender.delete_all(f"{path}/{each['metadata']['name']}" for each in objects)


async def _delete_object(sender: Sender, path: str) -> None:
    try:
        await sender.delete_all([path])
    except Refused as refused:
        if refused.code != CONFLICT:  # a namespace that is being deleted already
            raise
