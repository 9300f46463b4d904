"""Counts of a server's work, read from its `/metrics`; unlike times they are the same on a busy machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.server.observability.metrics import AUDIT_LINES, COMMITS, REQUESTS, TRANSACTION_REQUESTS

_LINE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE", "DELETECOLLECTION"})


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has done since it started, or between two moments.

    Writes are answered requests that change objects, those of the load among them; a transaction is one.
    Object writes count the requests in it instead. Refused writes are requests, alone or in a transaction,
    that were answered with an error, such as conflicts.
    """

    writes: float = 0.0
    object_writes: float = 0.0
    refused_writes: float = 0.0
    commits: float = 0.0
    audit_lines: float = 0.0

    def __sub__(self, before: Counts) -> Counts:
        return Counts(
            self.writes - before.writes,
            self.object_writes - before.object_writes,
            self.refused_writes - before.refused_writes,
            self.commits - before.commits,
            self.audit_lines - before.audit_lines,
        )

    def divide(self, pods: int) -> Counts:
        """Return the counts per pod."""
        if not pods:
            return Counts()
        return Counts(
            self.writes / pods,
            self.object_writes / pods,
            self.refused_writes / pods,
            self.commits / pods,
            self.audit_lines / pods,
        )


def read_counts(text: str) -> Counts:
    """Read the counts from the text format of Prometheus."""
    sums = dict.fromkeys((REQUESTS, TRANSACTION_REQUESTS, COMMITS, AUDIT_LINES), 0.0)
    refused = transactions = 0.0
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or found["name"] not in sums:
            continue
        name, value = found["name"], float(found["value"])
        labels = dict(_LABEL.findall(found["labels"] or ""))
        if name == REQUESTS and not _is_write(labels):
            continue
        if name in (REQUESTS, TRANSACTION_REQUESTS) and not labels.get("code", "").startswith("2"):
            refused += value if name == REQUESTS else 0.0
            continue
        sums[name] += value
        if name == REQUESTS and labels.get("resource") == "transactions":
            transactions += value
    return Counts(
        writes=sums[REQUESTS] - sums[TRANSACTION_REQUESTS],
        object_writes=sums[REQUESTS] - transactions,
        refused_writes=refused,
        commits=sums[COMMITS],
        audit_lines=sums[AUDIT_LINES],
    )


def _is_write(labels: Mapping[str, str]) -> bool:
    """Whether requests with these labels change objects; reviews are posted, and stored nowhere."""
    return labels.get("verb") in WRITES and not labels.get("resource", "").endswith("reviews")
