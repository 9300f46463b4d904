"""A cluster in its own process: `dray up` on a fresh directory, without nodes of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.lean import Address
from bench.processes import Measured

GATES: Final = (
    "DRAPrioritizedList",
    "DRAConsumableCapacity",
    "DRAListTypeAttributes",
    "DRAPartitionableDevices",
)
START_SECONDS: Final = 30.0


class Cluster(Measured):
    """A running cluster."""

    def __init__(self, folder: Path, wrapped: tuple[str, ...] = (), processes: str = "1") -> None:
        """`wrapped` stands before the command, for example a profiler."""
        self.kubeconfig = folder / "data" / "admin.kubeconfig"
        gates = ",".join(f"{gate}=true" for gate in GATES)
        command = [sys.executable, "-m", "dray.cli", "up", "--nodes", "0", "--port", "0"]
        command += ["--data-dir", str(folder / "data"), "--feature-gates", gates, "--processes", processes]
        self.log = folder / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*wrapped, *command], stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the cluster did not start:\n{self.log.read_text('utf-8')}")
            time.sleep(0.01)
        self.address = Address.of_kubeconfig(self.kubeconfig)


@contextmanager
def running(folder: Path, wrapped: tuple[str, ...] = (), processes: str = "1") -> Iterator[Cluster]:
    cluster = Cluster(folder, wrapped, processes)
    try:
        yield cluster
    finally:
        cluster.stop()
