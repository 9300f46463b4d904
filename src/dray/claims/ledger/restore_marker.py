"""Restore marker: marks a store that continues from a backup, and which nodes must report before devices are
reused.

Theory of operation: nodes keep running while their server is restored, so they may have devices prepared that
the backup does not contain. A restore leaves a marker with a new ID. A node with our agent notes on its Node
the ID of the last restore after which it reported its devices; a node that has not is *awaited*. Only its
node can have a device that is local to one node; any node can have one that several reach, also a node that
the backup does not contain, and such nodes get a time to report. When no node is awaited any more and that
time is over, the marker is settled, for good.

This module must not contain time or rows of the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from dray.api.json_text import write_json
from dray.claims.ledger.denials import Denial, DenialReason
from dray.claims.ledger.rows import DeviceId
from dray.errors import DecodeError

MARKER_KEY: Final = b"/restored"
"""The key of the marker, beside objects and rows."""
MARKER_FORMAT: Final = 1
_MAX_NAMED_NODES: Final = 3
"""The number of nodes that one message names."""


class RestoreMarker(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """Marks a store that continues from a backup."""

    format: int = MARKER_FORMAT
    id: str
    at: str
    """When it was restored."""
    settled: str = ""
    """Since when no node is awaited any more; empty while one is."""


def encode_marker(marker: RestoreMarker) -> bytes:
    """The marker as stored bytes."""
    return write_json(marker)


def decode_marker(value: bytes) -> RestoreMarker:
    """Decode a marker; raises `DecodeError` for a format that this dray does not understand."""
    try:
        mark = msgspec.json.decode(value, type=RestoreMarker)
    except (msgspec.MsgspecError, ValueError) as broken:
        raise DecodeError(f"the mark of the last restore is not readable: {broken}") from None
    if mark.format != MARKER_FORMAT:
        raise DecodeError(
            f"the mark of the last restore has format {mark.format}, this dray reads {MARKER_FORMAT}"
        )
    return mark


def find_awaited_nodes(
    known: Iterable[tuple[str, str]], preparing: Iterable[str], marker: RestoreMarker
) -> frozenset[str]:
    """Nodes that have not reported their devices since the restore.

    `known` are the nodes with our agent, each with the ID it noted; `preparing` those that have devices
    prepared according to the backup, known or not.
    """
    noted = dict(known)
    nodes = {*noted, *preparing}
    return frozenset(node for node in nodes if noted.get(node) != marker.id)


def deny_until_reported(
    device: DeviceId, only_node: str, waiting: Collection[str], *, early: bool, position: int
) -> Denial | None:
    """Why a device cannot be allocated yet; `only_node` is the only node that can have it, if there is one.

    `early`: nodes that the backup does not contain may still report.
    """
    if only_node:
        waiting, early = [node for node in waiting if node == only_node], False
    if waiting:
        return Denial(DenialReason.AWAITED, device, _format_awaited(device, sorted(waiting)), position)
    if early:
        why = (
            f"device {device} can be reached by several nodes, and the server goes on from a copy that may "
            "not know all of them; wait until they had time to report what they have prepared"
        )
        return Denial(DenialReason.AWAITED, device, why, position)
    return None


def _format_awaited(device: DeviceId, nodes: list[str]) -> str:
    more = f" and {len(nodes) - _MAX_NAMED_NODES} more" if len(nodes) > _MAX_NAMED_NODES else ""
    names = f"node{'s' if len(nodes) > 1 else ''} {', '.join(nodes[:_MAX_NAMED_NODES])}{more}"
    have = "have" if len(nodes) > 1 else "has"
    return (
        f"device {device} may be in use on {names}, which {have} not said what is in use there since the "
        f"server was restored from a copy; wait, or run `dray fence node {nodes[0]}` when it is switched off"
    )
