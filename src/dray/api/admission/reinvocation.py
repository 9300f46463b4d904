"""Whose turn it is: the order in which mutating webhooks are asked, and who is asked once more.

Theory of operation: each webhook that is asked notes whether it wants to see later changes. When one changes
the object, all that were asked before it and want that are due once more; who comes after it has seen the
change. After the first round those that are due are asked in their order, once, whatever they change then.
"""

from __future__ import annotations

from collections.abc import Iterable


class ReinvocationTracker:
    """Remembers who was asked before a change."""

    def __init__(self) -> None:
        self._called: list[int] = []
        self._due: set[int] = set()

    def record_call(self, position: int, *, wants_reinvocation: bool, changed: bool) -> None:
        """Note that a webhook was asked: whether it wants to see later changes, and whether it made one."""
        if changed:
            self._due.update(self._called)
            self._called.clear()
        if wants_reinvocation:
            self._called.append(position)

    def list_due(self) -> Iterable[int]:
        """Positions of those that are asked once more."""
        return sorted(self._due)
