"""Which taints of a node a pod puts up with."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Taint, Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers a taint; a key or an effect it leaves empty matches all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether a pod with these tolerations puts up with a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)
