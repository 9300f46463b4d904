"""Reinvocation of mutating webhooks: which ones are called a second time.

Theory of operation: for each call the tracker records whether the webhook's policy is `IfNeeded`. When a
webhook changes the object, all earlier webhooks with that policy are due once more; later ones see the change
anyway. After the first pass those that are due are called in their order, once, whatever they change then.
"""

from __future__ import annotations

from collections.abc import Iterable


class ReinvocationTracker:
    """Records which webhooks were called before a change."""

    def __init__(self) -> None:
        self._called: list[int] = []
        self._due: set[int] = set()

    def record_call(self, position: int, *, wants_reinvocation: bool, changed: bool) -> None:
        """Record a call: whether the webhook wants to be called again after later changes, and whether it
        made one.
        """
        if changed:
            self._due.update(self._called)
            self._called.clear()
        if wants_reinvocation:
            self._called.append(position)

    def list_due(self) -> Iterable[int]:
        """Return the positions of the webhooks to call a second time."""
        return sorted(self._due)
