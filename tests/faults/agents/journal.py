"""The journal of a node, written by drivers and containers themselves, and its check.

Theory of operation: all processes append lines to one file, so the order of lines is the order of events. A
driver writes `prepare` before it works, `prepared` before it replies, `unprepare` before it releases anything
and `unprepared` before it replies. A container writes `run` when it starts, with the boot in which each of
its devices was prepared, as it finds it in its environment, and `end` when it ends. The machine writes
`reboot`: nothing runs then, and nothing is prepared any more.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Held = tuple[str, str]
"""A claim's uid, and a driver that has a part in it."""


def tell(journal: Path, *words: str) -> None:
    """Append a line; whole lines of several processes do not mix."""
    line = " ".join((f"{time.monotonic():.6f}", *words)) + "\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def variable(driver: str, uid: str) -> str:
    """The name of the variable that a container with a prepared claim has."""
    return f"HAS_{driver}_{uid}".replace("-", "_").replace(".", "_")


@dataclass
class Judge:
    """Reads a journal and reports violations."""

    boot: str = ""
    prepared: dict[Held, str] = field(default_factory=dict)
    """What is prepared now, and in which boot."""
    owed: set[Held] = field(default_factory=set)
    """Claims that were prepared and not unprepared since."""
    running: dict[str, tuple[Held, ...]] = field(default_factory=dict)
    """Pods whose container runs, and what it uses."""
    began: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> Judge:
        for number, line in enumerate(lines, 1):
            _, who, *words = line.split()
            before = len(self.breaches)
            getattr(self, f"_{who}")(*words)
            self.breaches[before:] = [f"line {number}: {each}" for each in self.breaches[before:]]
        return self

    def finish(self) -> Judge:
        """Everything has ended: nothing may be left."""
        for uid, driver in sorted(self.owed):
            self.breaches.append(f"Unprepare missed: claim {uid} at {driver}")
        for pod in sorted(self.running):
            self.breaches.append(f"still running at the end: {pod}")
        return self

    def _machine(self, what: str, boot: str) -> None:
        self.counts[what] += 1
        self.boot = boot
        self.prepared.clear()
        self.running.clear()
        self.began.clear()

    def _driver(self, driver: str, what: str, uid: str, boot: str) -> None:
        self.counts[what] += 1
        held = (uid, driver)
        if what == "prepare":
            self.owed.add(held)
        elif what == "prepared":
            self.prepared[held] = boot
        elif what == "unprepare":
            users = [pod for pod, has in self.running.items() if held in has]
            if users:
                self.breaches.append(f"Unprepare while in use: claim {uid} at {driver} by {', '.join(users)}")
            self.prepared.pop(held, None)
        elif what == "unprepared":
            self.owed.discard(held)

    def _container(self, pod: str, what: str, *uses: str) -> None:
        self.counts[what] += 1
        if what == "end":
            self.running.pop(pod, None)
            return
        if pod in self.running:
            self.breaches.append(f"running twice: {pod}")
        self.began[pod] += 1
        if self.began[pod] > 1:
            self.breaches.append(f"ran again in one boot: {pod}")
        has = []
        for each in uses:
            place, _, seen = each.partition("=")
            uid, _, driver = place.partition("/")
            has.append((uid, driver))
            if self.prepared.get((uid, driver)) != self.boot:
                self.breaches.append(f"ran without Prepare: {pod} uses claim {uid} of {driver}")
            elif seen != self.boot:
                self.breaches.append(
                    f"ran without its device: {pod} sees `{seen}` of claim {uid} of {driver}"
                )
        self.running[pod] = tuple(has)


def judged(journal: Path) -> Judge:
    """Judge a journal whose node has come to rest."""
    return Judge().read(journal.read_text().splitlines()).finish()
