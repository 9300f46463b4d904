"""Taints: reasons not to use a device, unless the want tolerates them."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.refusals import Reason, Refusal
from dray.api.resource import DeviceTaint, DeviceToleration
from dray.api.tolerations import tolerated


def refuse(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> Refusal | None:
    """The first taint that nothing tolerates."""
    for taint in taints:
        if not tolerated(taint, tolerations):
            return Refusal(Reason.TAINTED, taint)
    return None
