"""Which taints are put up with: the same rule for devices and for nodes."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Taint, Toleration
from dray.api.resource import DeviceTaint, DeviceToleration


def tolerates_taint(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether one toleration covers a taint; a key or an effect it leaves empty matches all of them."""
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
    """Whether one of these tolerations covers a taint."""
    return any(tolerates_taint(toleration, taint) for toleration in tolerations)
