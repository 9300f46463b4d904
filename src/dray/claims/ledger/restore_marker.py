"""The mark of a store that goes on from a copy, and for whom must be waited before devices are given anew.

Theory of operation: nodes go on while their server is restored, so they may have devices in their hands of
which the copy knows nothing. A restore leaves a mark with an id of its own. A node with an agent of ours
notes on its Node the id of the last restore after which it said what it has; who has not is *awaited*. Nobody
but its node can have a device that is of one node alone; any node can have one that several reach, also a
node that the copy does not know, and such nodes are given a time in which to come. When nobody is awaited
any more and that time is over, the mark is settled, for good.

Rules for this file: values only; no time, no rows.
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
"""Where the mark stands, beside objects and rows."""
MARKER_FORMAT: Final = 1
_MAX_NAMED_NODES: Final = 3
"""So many nodes are named in one message."""


class RestoreMarker(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """That a store goes on from a copy."""

    format: int = MARKER_FORMAT
    id: str
    at: str
    """When it was restored."""
    settled: str = ""
    """Since when nobody is waited for any more; empty while somebody is."""


def encode_marker(marker: RestoreMarker) -> bytes:
    """The mark as it is stored."""
    return write_json(marker)


def decode_marker(value: bytes) -> RestoreMarker:
    """The mark from its stored bytes; a `DecodeError` when it is none that this dray understands."""
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
    """Nodes that have not said since the restore what they have.

    `known` are the nodes with an agent of ours, each with what it noted; `preparing` those that the copy says
    have something in their hands, whether they are known or not.
    """
    noted = dict(known)
    nodes = {*noted, *preparing}
    return frozenset(node for node in nodes if noted.get(node) != marker.id)


def deny_until_reported(
    device: DeviceId, only_node: str, waiting: Collection[str], *, early: bool, position: int
) -> Denial | None:
    """Why a device cannot change hands yet; `only_node` is the node that alone can have it, if there is one.

    `early` says that nodes which the copy does not know may still come.
    """
    if only_node:
        waiting, early = [node for node in waiting if node == only_node], False
    if waiting:
        return Denial(DenialReason.AWAITED, device, _format_awaited(device, sorted(waiting)), position)
    if early:
        why = (
            f"device {device} can be reached by several nodes, and the server goes on from a copy that may "
            "not know all of them; wait until they had time to say what they have in their hands"
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
