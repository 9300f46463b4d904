"""Power loss: nothing is acknowledged before the kernel said that it is on the disk.

A killed process leaves its unsynced writes to the kernel, so kills cannot show this. The system calls can: in
the trace of a process that writes one thing after the other, between the last write to the log and each
acknowledgement there must be a finished sync of the log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outside import ROOT

WRITES = 30
PROGRAM = f"""
import asyncio, os, sys
from pathlib import Path
from dray.store import Put
from dray.store.sqlite.store import SqliteStore

async def main():
    async with await SqliteStore.open(Path(sys.argv[1])) as store:
        for number in range({WRITES}):
            await store.txn([], [Put(b"%d" % number, b"x" * 500)])
            os.write(1, b"acknowledged\\n")

asyncio.run(main())
"""
LOG = re.compile(r"(pwrite64|fdatasync|fsync)\(\d+<[^>]*-wal>")
BEGUN = "<unfinished ...>"
RESUMED = re.compile(r"<\.\.\. (fdatasync|fsync) resumed>")
ACKNOWLEDGED = "write(1<"


def unsynced(trace: str) -> tuple[int, int]:
    """Count the acknowledgements, and those before their sync."""
    acknowledged = early = 0
    synced = False
    for line in trace.splitlines():
        call = LOG.search(line)
        if call is not None and call[1] == "pwrite64":
            synced = False
        elif (call is not None and BEGUN not in line) or RESUMED.search(line):
            synced = True
        elif ACKNOWLEDGED in line and "acknowledged" in line:
            acknowledged += 1
            early += not synced
    return acknowledged, early


def test_every_write_is_synced_before_it_is_acknowledged(tmp_path: Path):
    if shutil.which("strace") is None:
        pytest.skip("NO STRACE: that writes are synced before they are acknowledged is NOT shown")
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,write,fdatasync,fsync"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", PROGRAM]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(tmp_path / "a.db")], env=environment, capture_output=True, timeout=60, check=False
    )
    if b"ptrace" in done.stderr:
        pytest.skip("NO PTRACE: that writes are synced before they are acknowledged is NOT shown")
    assert done.returncode == 0, done.stderr
    assert unsynced(trace.read_text()) == (WRITES, 0)


def test_an_acknowledgement_before_its_sync_is_noticed():
    write, ack = (
        '1 pwrite64(8<x/a.db-wal>, "", 24, 0) = 24',
        '2 write(1<pipe:[1]>, "acknowledged\\n", 13) = 13',
    )
    begun, ended = "1 fdatasync(8<x/a.db-wal> <unfinished ...>", "1 <... fdatasync resumed>) = 0"
    assert unsynced("\n".join([write, begun, ack, ended])) == (1, 1)
    assert unsynced("\n".join([write, begun, ended, ack])) == (1, 0)
    assert unsynced("\n".join([write, "1 fdatasync(8<x/a.db-wal>) = 0", ack, write, ack])) == (2, 1)
