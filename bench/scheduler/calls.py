"""Function calls of a cluster, counted by a profiler in its process.

`python -m bench.scheduler.calls FILE ARG...` runs `dray ARG...`. At each signal USR1 the counts since the
first one are written to the file. A profiled process is slow, so nothing is timed there; counts do not mind.
"""

from __future__ import annotations

import cProfile
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import msgspec

PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Calls:
    """How often functions were called, also those in C, and how many JSON texts were written and read."""

    calls: float = 0.0
    encodes: float = 0.0
    decodes: float = 0.0

    def __sub__(self, before: Calls) -> Calls:
        return Calls(self.calls - before.calls, self.encodes - before.encodes, self.decodes - before.decodes)

    def divide(self, pods: int) -> Calls:
        """Return the counts per pod."""
        return Calls(self.calls / pods, self.encodes / pods, self.decodes / pods) if pods else Calls()


def count_calls(called: Iterable[tuple[CodeType | str, int]]) -> Calls:
    """Count the calls of functions; a function in C is a text, as the profiler has it."""
    total = encodes = decodes = 0
    for code, count in called:
        total += count
        if not isinstance(code, str) or "msgspec" not in code or "msgpack" in code:
            continue
        encodes += count if "encode" in code else 0
        decodes += count if "decode" in code else 0
    return Calls(total, encodes, decodes)


class CallProfile:
    """Profilers of all threads, and the file of their counts."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._main = cProfile.Profile()
        self._threads: list[cProfile.Profile] = []
        self._reports = 0

    def install(self) -> None:
        """Profile threads from their start, and this one from the first signal."""
        signal.signal(signal.SIGUSR1, self._report)
        if sys.version_info < (3, 12):  # where a profiler counts in its own thread only
            threading.setprofile(self._begin_thread)

    def _begin_thread(self, frame: FrameType, event: str, argument: Any) -> None:
        sys.setprofile(None)
        profile = cProfile.Profile()
        self._threads.append(profile)
        profile.enable()

    def _report(self, number: int, frame: FrameType | None) -> None:
        counts = self._count()
        self._reports += 1
        draft = self._file.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode({"number": self._reports, "calls": counts}))
        draft.rename(self._file)
        self._main.enable()

    def _count(self) -> Calls:
        """Count what was called until now.

        A call that a profiler notices while it is being read makes it lose others, so this thread is not
        profiled meanwhile, and the collector of garbage, which may call functions in between, is off.
        """
        self._main.disable()
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            profiles = [self._main, *self._threads]
            return count_calls([(each.code, each.callcount) for one in profiles for each in one.getstats()])
        finally:
            if was_enabled:
                gc.enable()


class _Report(msgspec.Struct):
    number: int
    calls: Calls


class CallCounter:
    """Asks a profiled process for its counts."""

    def __init__(self, file: Path, pid: int = 0) -> None:
        self._file = file
        self.pid = pid
        self._reports = 0

    def read(self) -> Calls:
        """Read what was counted until now."""
        self._reports += 1
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._file.exists():
                report = msgspec.json.decode(self._file.read_bytes(), type=_Report)
                if report.number == self._reports:
                    return report.calls
            time.sleep(0.01)
        raise SystemExit(f"the cluster did not report its calls within {PATIENCE:.0f} s")


def main() -> None:
    """Run `dray` with a profiler."""
    from dray.cli import main as run_dray

    CallProfile(Path(sys.argv[1])).install()
    sys.argv = ["dray", *sys.argv[2:]]
    run_dray()


if __name__ == "__main__":
    main()
