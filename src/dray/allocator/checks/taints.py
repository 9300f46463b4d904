"""Taints: reasons not to use a device, unless the want tolerates them."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.reasons import Reason, Refusal
from dray.api.resource import DeviceTaint, DeviceToleration


def refuse(taints: Iterable[DeviceTaint], tolerations: tuple[DeviceToleration, ...]) -> Refusal | None:
    """The first taint that nothing tolerates."""
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return Refusal(Reason.TAINTED, taint)
    return None


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration covers a taint; what it leaves empty matches everything."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
