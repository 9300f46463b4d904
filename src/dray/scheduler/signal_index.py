"""Who waits for what, and what has happened: waking by index, and nothing lost in between.

Theory of operation: `WaitingPodIndex` keeps for every signal the pods that wait for it. A signal is looked up
twice, as it is and without its `about` for those that any of its topic wakes; whoever is found is taken out
of all rows at once, so a burst of signals moves each pod once. `SignalLog` numbers what happens and remembers
for each signal its last number. A pod that is being tried was taken at some number; if one of the signals it
would wait for has a higher one, what it was told may no longer hold.

Rules for this file: the cost of a signal depends on whom it wakes, never on how many wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from dray.placement.rejections import Signal

MAX_REMEMBERED_SIGNALS = 20_000
"""Beyond this many different signals, older ones are forgotten and count as heard by everybody."""


class WaitingPodIndex:
    """Pods by the signals they wait for."""

    def __init__(self) -> None:
        self._rows: dict[Signal, dict[str, frozenset[Signal]]] = {}

    def add(self, uid: str, signals: frozenset[Signal]) -> None:
        """Let a pod wait for these."""
        for signal in signals:
            self._rows.setdefault(signal, {})[uid] = signals

    def remove(self, uid: str, signals: frozenset[Signal]) -> None:
        """Let a pod wait no longer; `signals` are those it was put under."""
        for signal in signals:
            row = self._rows.get(signal)
            if row is not None:
                row.pop(uid, None)
                if not row:
                    del self._rows[signal]

    def pop_waiting(self, signal: Signal) -> list[str]:
        """The pods that a signal wakes; they wait no longer."""
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
    """What has happened, and in which order."""

    def __init__(self, max_signals: int = MAX_REMEMBERED_SIGNALS) -> None:
        self.sequence = 0
        """The number of the last thing that happened."""
        self._max_signals = max_signals
        self._last: dict[Signal, int] = {}
        self._forgotten = 0

    def append(self, signal: Signal) -> None:
        """Something happened."""
        self.sequence += 1
        self._last[signal] = self._last[Signal(signal.topic)] = self.sequence
        if len(self._last) > self._max_signals:
            self._forgotten = self.sequence - self._max_signals // 4
            self._last = {known: at for known, at in self._last.items() if at > self._forgotten}

    def has_since(self, sequence: int, signals: Iterable[Signal]) -> bool:
        """Whether one of these happened after a moment; of what is forgotten, all may have."""
        if sequence < self._forgotten:
            return any(True for _ in signals)
        return any(self._last.get(signal, 0) > sequence for signal in signals)
