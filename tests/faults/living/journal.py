"""The journal of a driver, written by the driver itself, and its check.

Theory of operation: the driver appends a line before it prepares, after it has prepared, before it unprepares
and after that. With the lines before, it writes the processes that have the device at that moment: those that
have it by this claim when it is about to be unprepared, and those that have it by another claim when it is
about to be prepared. So a line that names any process is a breach, whatever happens afterwards.

Beside that there are lines for each call of the agent that was answered, and for each event of the campaign;
`list_sequences` makes of them what happened to each claim, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.agents.journal import tell


def write_line(journal: Path, what: str, uid: str, device: str, pids: Iterable[int] = ()) -> None:
    tell(journal, what, uid, device, *map(str, pids))


@dataclass
class Judge:
    """Reads a journal and reports violations."""

    holders: dict[str, str] = field(default_factory=dict)
    """Devices that are prepared, or begun to be, and the uid of the claim that has each."""
    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def read(self, lines: Iterable[str]) -> Judge:
        for number, line in enumerate(lines, 1):
            _, what, uid, device, *pids = line.split()
            self.counts[what] += 1
            for breach in self._judge(what, uid, device, pids):
                self.breaches.append(f"line {number}: {breach}")
        return self

    def finish(self) -> Judge:
        """Everything has ended: nothing may be left."""
        for device, uid in sorted(self.holders.items()):
            self.breaches.append(f"never given back: {device} of claim {uid}")
        return self

    def _judge(self, what: str, uid: str, device: str, pids: list[str]) -> Iterable[str]:
        holder = self.holders.get(device, "")
        if what == "prepare":
            if pids:
                yield f"prepared for claim {uid} while processes {pids} of another have it: {device}"
            elif holder not in ("", uid):
                yield f"prepared for claim {uid} while claim {holder} has it: {device}"
            self.holders[device] = uid
        elif what == "unprepare" and pids:
            yield f"taken from living processes {pids}: {device} of claim {uid}"
        elif what == "unprepared" and holder == uid:
            del self.holders[device]


EVERYTHING = "*"
"""In place of a uid: an event that every claim of the node has."""


def list_sequences(lines: Iterable[str]) -> dict[str, list[str]]:
    """What happened to each claim by its uid: calls with their answers, and events after the first call."""
    sequences: dict[str, list[str]] = {}
    for line in lines:
        _, what, uid, detail, *_ = line.split()
        if what.endswith("-call"):
            sequences.setdefault(uid, []).append(f"{what.removesuffix('-call')} {detail}")
        elif what == "event":
            for one, sequence in sequences.items():
                if uid in (one, EVERYTHING):
                    sequence.append(detail)
    return sequences


def read_journal(journal: Path) -> Judge:
    return Judge().read(journal.read_text().splitlines() if journal.exists() else ())
