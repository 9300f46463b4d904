"""Taints: reasons not to use a device, unless the want tolerates them."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.refusals import Refusal, RefusalReason
from dray.api.resource import DeviceTaint, DeviceToleration
from dray.api.tolerations import is_tolerated


def check(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> Refusal | None:
    """The first taint that nothing tolerates."""
    for taint in taints:
        if not is_tolerated(taint, tolerations):
            return Refusal(RefusalReason.TAINTED, taint)
    return None
