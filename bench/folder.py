"""How long `dray lint` takes for a folder, in its own process: start-up, reading, rules, output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import material


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command: wall time, processor time, peak memory, last line of output."""

    seconds: float
    cpu_seconds: float
    peak_megabytes: float
    exit_code: int
    summary: str


@dataclass(frozen=True, slots=True)
class FolderTiming:
    """Several runs over one folder."""

    manifests: int
    bytes: int
    runs: tuple[Run, ...]

    @property
    def best(self) -> Run:
        return min(self.runs, key=lambda run: run.seconds)


def timing(count: int, repeats: int) -> FolderTiming:
    """Lint a fresh folder with `count` manifests a few times."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        folder = Path(name) / "manifests"
        folder.mkdir()
        size = material.write_folder(folder, count)
        return FolderTiming(count, size, tuple(_lint(folder) for _ in range(repeats)))


def _lint(folder: Path) -> Run:
    output = folder.parent / "output.txt"
    command = [sys.executable, "-m", "dray.cli", "lint", str(folder)]
    with output.open("wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        # wait4 and not the usual wait: only it tells what this one child has used.
        _, status, used = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    said = output.read_text("utf-8", "replace").strip().splitlines() or [""]
    peak = used.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    return Run(took, used.ru_utime + used.ru_stime, peak, process.returncode, said[-1])


def as_document(found: FolderTiming) -> dict[str, Any]:
    return asdict(found)
