"""Tolerations: the matching rule shared by taints of devices and taints of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Taint, Toleration
from dray.api.resource import DeviceTaint, DeviceToleration


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
