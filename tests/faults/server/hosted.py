"""Servers that run as processes: started, measured, stopped or killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.lean import Address

PATIENCE = 60.0


class Hosted:
    """A server in a process of its own."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.folder = folder
        self.kubeconfig = folder / "admin.kubeconfig"
        self.kubeconfig.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.faults.server.host", str(folder), json.dumps(limits)]
        self._errors = (folder / "stderr").open("ab")
        self.process = subprocess.Popen(command, stderr=self._errors)
        end = time.monotonic() + PATIENCE
        while not self.kubeconfig.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {self.said()}")
            time.sleep(0.01)

    def address(self) -> Address:
        return Address.of_kubeconfig(self.kubeconfig)

    def megabytes(self, field: str = "VmRSS") -> float:
        """What the process has in memory; `VmHWM` is the most it ever had."""
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        return int(next(line for line in text.splitlines() if line.startswith(field)).split()[1]) / 1024

    def said(self) -> str:
        """Everything it wrote to standard error."""
        return (self.folder / "stderr").read_text("utf-8", "replace")

    def stop(self) -> None:
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(PATIENCE)
        self._errors.close()


@contextmanager
def hosted(folder: Path, **limits: Any) -> Iterator[Hosted]:
    """A server while the block lasts."""
    server = Hosted(folder, **limits)
    try:
        yield server
    finally:
        server.stop()
