"""Index of waiting pods by signal, and the log of signals that recognises stale decisions.

Theory of operation: `WaitingPodIndex` keeps for every signal the pods that wait for it. A signal is looked up
twice, as it is and without its `about` for the pods that any signal of its topic wakes; found pods are
removed from all rows at once, so a burst of signals moves each pod once. `SignalLog` numbers the signals and
remembers the last number of each. A pod that is being tried was taken at some number; if one of the signals
it would wait for has a higher one, its refusal may no longer hold.

Rules for this file: the cost of a signal depends on the pods it wakes, never on how many wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from dray.placement.rejections import Signal

MAX_REMEMBERED_SIGNALS = 20_000
"""Beyond this many different signals, older ones are forgotten and count as newer than any decision."""


class WaitingPodIndex:
    """Pods by the signals they wait for."""

    def __init__(self) -> None:
        self._rows: dict[Signal, dict[str, frozenset[Signal]]] = {}

    def add(self, uid: str, signals: frozenset[Signal]) -> None:
        """Let a pod wait for these signals."""
        for signal in signals:
            self._rows.setdefault(signal, {})[uid] = signals

    def remove(self, uid: str, signals: frozenset[Signal]) -> None:
        """Let a pod wait no longer; `signals` are those it was added with."""
        for signal in signals:
            row = self._rows.get(signal)
            if row is not None:
                row.pop(uid, None)
                if not row:
                    del self._rows[signal]

    def pop_waiting(self, signal: Signal) -> list[str]:
        """Remove and return the pods that a signal wakes."""
        found = self._rows.pop(signal, {})
        if signal.about:
            found |= self._rows.pop(Signal(signal.topic), {})
        for uid, signals in found.items():
            if len(signals) > 1:
                self.remove(uid, signals)
        return list(found)

    def __len__(self) -> int:
        return len(self._rows)


class SignalLog:
    """The signals so far, and their order."""

    def __init__(self, max_signals: int = MAX_REMEMBERED_SIGNALS) -> None:
        self.sequence = 0
        """The number of the last signal."""
        self._max_signals = max_signals
        self._last: dict[Signal, int] = {}
        self._forgotten = 0

    def append(self, signal: Signal) -> None:
        """Record a signal."""
        self.sequence += 1
        self._last[signal] = self._last[Signal(signal.topic)] = self.sequence
        if len(self._last) > self._max_signals:
            self._forgotten = self.sequence - self._max_signals // 4
            self._last = {known: at for known, at in self._last.items() if at > self._forgotten}

    def has_since(self, sequence: int, signals: Iterable[Signal]) -> bool:
        """Whether one of these signals came after a number; of forgotten signals, all may have."""
        if sequence < self._forgotten:
            return any(True for _ in signals)
        return any(self._last.get(signal, 0) > sequence for signal in signals)
