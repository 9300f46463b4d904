"""Resource usage of a measured process, and how it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


class Measured:
    """A process of ours; whoever starts it sets `process`."""

    process: subprocess.Popen[bytes]

    def megabytes(self, field: str = "VmRSS") -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        line = next(line for line in text.splitlines() if line.startswith(field))
        return int(line.split()[1]) / 1024

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
