"""A process that writes until it is killed, and prints what was acknowledged."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import threading
from pathlib import Path

from dray.store import (
    Committed,
    KeyAbsent,
    KeyUnchanged,
    Put,
    SequenceCommitted,
    TxnStep,
    build_step_revision,
)
from dray.store.sqlite import backup
from dray.store.sqlite import store as store_module
from dray.store.sqlite.database_file import connect
from dray.store.sqlite.store import SqliteStore

WRITERS = 8
LONGEST_COMMIT = 0.001
RARE = ("in-compaction", "between-compaction-steps", "before-rename", "after-rename")
POINTS = ("before-begin", "in-group", "before-commit", "in-commit", "after-commit", *RARE)
"""Where a process kills itself; those of compaction and backup are met less often."""


class Fuse:
    """Kills the process at the named point, the given number of times later."""

    def __init__(self, point: str, count: int) -> None:
        self.point = point
        self.count = count

    def reached(self, point: str, *, soon: bool = False) -> None:
        """Die here, or with `soon` somewhere in what comes next."""
        if point != self.point:
            return
        self.count -= 1
        if self.count <= 0 and soon:
            # SQLite releases the interpreter lock while it writes and syncs, so this thread can strike in
            # between.
            threading.Timer(random.uniform(0, LONGEST_COMMIT), _die).start()
        elif self.count <= 0:
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FusedConnection:
    """The writer's connection, with a fuse at the edges of its transactions."""

    def __init__(self, connection: sqlite3.Connection, fuse: Fuse) -> None:
        self._connection = connection
        self._fuse = fuse

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        if statement == "BEGIN IMMEDIATE":
            self._fuse.reached("before-begin")
        elif statement.startswith("REPLACE INTO current"):
            self._fuse.reached("in-group")
        elif statement == "COMMIT":
            self._fuse.reached("before-commit")
            self._fuse.reached("in-commit", soon=True)
        result = self._connection.execute(statement, *arguments)  # type: ignore[arg-type]
        if statement == "COMMIT":
            self._fuse.reached("after-commit")
        return result

    def executemany(self, *arguments: object) -> sqlite3.Cursor:
        self._fuse.reached("in-compaction")
        return self._connection.executemany(*arguments)  # type: ignore[arg-type]

    def executescript(self, script: str) -> sqlite3.Cursor:
        self._fuse.reached("between-compaction-steps")
        return self._connection.executescript(script)


def light(fuse: Fuse) -> None:
    def fused(path: Path, *, writer: bool) -> object:
        connection = connect(path, writer=writer)
        return FusedConnection(connection, fuse) if writer else connection

    vars(store_module)["connect"] = fused
    publish = backup._move_into_place

    def published(building: Path, target: Path) -> None:
        fuse.reached("before-rename")
        publish(building, target)
        fuse.reached("after-rename")

    backup._move_into_place = published


def key_of(turn: int, number: int) -> bytes:
    return b"w/%d/%07d" % (turn, number)


def has_second_step(number: int) -> bool:
    """Whether a write is the first of two that are committed together."""
    return number % 3 == 1


async def write(path: Path, turn: int) -> None:
    store = await SqliteStore.open(path)
    numbers = iter(range(10**7))

    async def writer() -> None:
        for number in numbers:
            key = key_of(turn, number)
            value = b"%d " % number * 20
            writes = Put(key, value), Put(b"twin/" + key, value), Put(b"last", b"%d" % number)
            if has_second_step(number):
                first = TxnStep((KeyAbsent(key),), writes)
                second = TxnStep((KeyUnchanged(key, build_step_revision(0)),), (Put(b"step/" + key, value),))
                done = await store.txn_sequence([first, second])
                assert isinstance(done, SequenceCommitted)
                revision = done.revisions[0]
            else:
                outcome = await store.txn([KeyAbsent(key)], writes)
                assert isinstance(outcome, Committed)
                revision = outcome.revision
            os.write(1, b"%d %d\n" % (number, revision))
            if number % 100 == 50:
                await store.compact(revision - 20)
            if number % 400 == 200:
                await store.backup(path.with_name("backup.db"))

    await asyncio.gather(*(writer() for _ in range(WRITERS)))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        light(Fuse(sys.argv[3], int(sys.argv[4])))
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
