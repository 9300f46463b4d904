"""R-01: nothing acknowledged is lost when a process is killed, nothing is half there, revisions grow."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dray.store.base import StoreEntry
from dray.store.errors import StoreOpenError
from dray.store.sqlite import queries
from dray.store.sqlite.database_file import connect, prepare_file, verify_file
from tests.faults.store.child import POINTS, RARE, has_second_step, key_of
from tests.outside import ROOT


@dataclass
class Tally:
    """What a campaign saw; the pass line is that the last three stay 0."""

    kills: int = 0
    each_point: int = 0
    """How often each named point was met, at least."""
    acknowledged: int = 0
    lost: int = 0
    half: int = 0
    backwards: int = 0

    def sound(self) -> bool:
        return self.lost == self.half == self.backwards == 0


def campaign(folder: Path, kills: int, seed: int, longest: int = 400) -> Tally:
    """Kill a writing process again and again on one file; look after each kill."""
    rng = random.Random(seed)
    points = ("", *POINTS)
    tally, path = Tally(), folder / "store.db"
    known: dict[bytes, int] = {}
    hits: Counter[str] = Counter()
    revision = 0
    for turn in range(kills):
        point = points[turn % len(points)]
        acknowledged, by_itself = _run_and_kill(path, turn, point, rng, longest)
        tally.kills += 1
        hits[point] += by_itself
        tally.each_point = min(hits[point] for point in POINTS)
        tally.acknowledged += len(acknowledged)
        known |= {key_of(turn, number): at for number, at in acknowledged.items()}
        revision = _look(path, known, revision, tally)
    return tally


def _run_and_kill(
    path: Path, turn: int, point: str, rng: random.Random, longest: int
) -> tuple[dict[int, int], bool]:
    """Start the writer and let it die; returns what it had acknowledged, and whether it died at its point."""
    command = [sys.executable, "-m", "tests.faults.store.child", str(path), str(turn)]
    if point:
        command += [point, str(rng.randint(1, 2) if point in RARE else rng.randint(2, 60))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    assert child.stdout is not None
    told = b""
    end = time.monotonic() + 20
    lines = rng.randint(1, longest)
    by_itself = False
    while time.monotonic() < end:
        ready, _, _ = select.select([child.stdout], [], [], 1)
        chunk = os.read(child.stdout.fileno(), 1 << 16) if ready else b""
        told += chunk
        by_itself = bool(ready and not chunk)
        if by_itself or (not point and told.count(b"\n") >= lines):
            break
    child.send_signal(signal.SIGKILL)
    told += child.stdout.read()
    child.stdout.close()
    assert child.wait(20) == -signal.SIGKILL, "the child ended by itself"
    whole = told[: told.rfind(b"\n") + 1].split()
    return dict(zip(map(int, whole[::2]), map(int, whole[1::2]), strict=True)), by_itself


def _look(path: Path, known: dict[bytes, int], revision: int, tally: Tally) -> int:
    head = prepare_file(path)
    tally.backwards += head.revision < max([revision, *known.values()], default=0)
    connection = connect(path, writer=False)
    try:
        found = {entry.key: entry for entry in queries.read_page(connection, b"", None, None, None).entries}
    finally:
        connection.close()
    for key, at in known.items():
        tally.lost += not _whole(found.get(key), at)
    for key in [key for key in found if key.startswith(b"w/")]:
        twin = found.get(b"twin/" + key)
        tally.half += twin is None or (twin.value, twin.mod_revision) != (
            found[key].value,
            found[key].mod_revision,
        )
        second = found.get(b"step/" + key)
        if has_second_step(int(key.rpartition(b"/")[2])):
            # Both steps happened, the second one directly after the first.
            tally.half += second is None or second.mod_revision != found[key].mod_revision + 1
    for prefix in (b"twin/", b"step/"):
        tally.half += sum(key.removeprefix(prefix) not in found for key in found if key.startswith(prefix))
    saved = path.with_name("backup.db")
    if saved.exists():
        try:
            verify_file(saved, writer=False)
        except StoreOpenError:
            tally.half += 1
    return head.revision


def _whole(entry: StoreEntry | None, revision: int) -> bool:
    return (
        entry is not None
        and entry.mod_revision == revision
        and entry.value == b"%d " % int(entry.key.rpartition(b"/")[2]) * 20
    )
