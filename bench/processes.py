"""Resource usage of measured processes, and how ours are stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


def read_megabytes(pid: int, field: str = "VmRSS") -> float:
    """Read the memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    line = next(line for line in text.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def read_processor_seconds(pid: int) -> float:
    """Read the time that all threads of a process have used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ProcessGroup:
    """Processes that others started, measured together."""

    def __init__(self, pids: Sequence[int]) -> None:
        self.pids = tuple(pids)

    def megabytes(self) -> float:
        return sum(map(read_megabytes, self.pids))

    def processor_seconds(self) -> float:
        return sum(map(read_processor_seconds, self.pids))


def list_processes(pid: int) -> list[int]:
    """List a process and all that it started, directly or not."""
    found = [pid]
    for each in found:
        for thread in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (thread / "children").read_text("ascii").split())
    return found


class Measured:
    """A process of ours with those that it started; whoever starts it sets `process`."""

    process: subprocess.Popen[bytes]

    def megabytes(self, field: str = "VmRSS") -> float:
        return sum(read_megabytes(pid, field) for pid in list_processes(self.process.pid))

    def processor_seconds(self) -> float:
        return sum(map(read_processor_seconds, list_processes(self.process.pid)))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
