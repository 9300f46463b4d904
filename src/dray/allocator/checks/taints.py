"""Taint checks: a device with a taint is refused unless the alternative tolerates it."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.refusals import Refusal, RefusalReason
from dray.api.resource import DeviceTaint, DeviceToleration
from dray.api.tolerations import is_tolerated


def check(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> Refusal | None:
    """Refuse a device for its first taint that no toleration covers."""
    for taint in taints:
        if not is_tolerated(taint, tolerations):
            return Refusal(RefusalReason.TAINTED, taint)
    return None
