"""Tolerations: the matching rule shared by taints of devices and taints of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from dray.api.core import Taint, Toleration
from dray.api.resource import DeviceTaint, DeviceToleration

LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The time of a taint that has none."""
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


def tolerates_taint(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether one toleration covers a taint; an empty key or effect matches all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def is_tolerated(
    taint: Taint | DeviceTaint, tolerations: Iterable[Toleration] | Iterable[DeviceToleration]
) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(tolerates_taint(toleration, taint) for toleration in tolerations)


def compute_toleration_end(
    taint: Taint | DeviceTaint, tolerations: Iterable[Toleration] | Iterable[DeviceToleration]
) -> datetime | None:
    """When the tolerations of a taint end, counted from when it was added; None for one that lasts.

    Without a matching toleration that is the time of the taint itself; a taint without a time counts as
    always present. Of several that match the shortest counts; an unlimited one only when no other matches.
    """
    added = taint.time_added
    since = (
        LONG_AGO if added is None else datetime.fromisoformat(added.replace("Z", "+00:00")).astimezone(UTC)
    )
    matching = [each for each in tolerations if tolerates_taint(each, taint)]
    if not matching:
        return since
    limits = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
    if not limits:
        return None
    longest = int((_NEVER - since).total_seconds())
    return since + timedelta(seconds=min(max(min(limits), 0), longest))
