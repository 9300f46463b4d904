"""Which requirements the tests name, and how many there are of each seed and level."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.tables import tables


class Requirement(NamedTuple):
    """One row of requirements.json, as far as counting needs it."""

    id: str
    level: str

    @property
    def seed(self) -> str:
        """The document a requirement comes from: `K5075` of `K5075-033`."""
        return self.id.partition("-")[0]


def load(source: Path) -> tuple[Requirement, ...]:
    """The rows of requirements.json."""
    return tuple(Requirement(row["id"], row["level"]) for row in json.loads(source.read_text("utf-8")))


def ids_of(value: object) -> frozenset[str]:
    """The ids in a marker's arguments or under a `req:` key; anything but texts is a mistake in the test."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) for item in items):
        raise ValueError(f"`req` wants one or more requirement ids, not {value!r}")
    return frozenset(items)


def find_ids_in_cases(folder: Path) -> frozenset[str]:
    """Every id under a `req:` key of a case file."""
    found: set[str] = set()
    for case in sorted(folder.rglob("*.yaml")):
        found.update(id for document in tables(case) for id in _under_req(document))
    return frozenset(found)


def _under_req(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from ids_of(value) if key == "req" else _under_req(value)
    elif isinstance(node, list):
        for value in node:
            yield from _under_req(value)


def summary(named: Collection[str], known: Collection[Requirement]) -> list[str]:
    """The lines printed after a test run: all requirements first, then level by level, the largest first."""
    if not known:
        return [f"requirements named by tests: {len(named)} (not compared: no list of requirements here)"]
    levels = sorted({row.level for row in known}, key=lambda level: (-_size(known, level), level))
    lines = [f"requirements named by tests: {_tally(named, known)}"]
    lines += [f"  level {level}: {_tally(named, [r for r in known if r.level == level])}" for level in levels]
    return lines


def _size(known: Iterable[Requirement], level: str) -> int:
    return sum(row.level == level for row in known)


def _tally(named: Collection[str], rows: Collection[Requirement]) -> str:
    parts = []
    for seed in sorted({row.seed for row in rows}):
        ids = [row.id for row in rows if row.seed == seed]
        parts.append(f"{seed} {sum(i in named for i in ids)}/{len(ids)}")
    parts.append(f"all {sum(row.id in named for row in rows)}/{len(rows)}")
    return " · ".join(parts)
