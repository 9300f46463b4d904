"""A cluster in its own process: `dray up` on a fresh directory, without nodes of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How a cluster is started."""

    folder: Path
    """Where it stores everything; empty at the start."""
    wrapped: tuple[str, ...] = ()
    """Stands before the command, for example a profiler."""
    processes: str = "1"
    token_file: Path | None = None
    """The users of agents."""
    calls_file: Path | None = None
    """Where the counts of function calls are written; without it nothing counts them."""

    def build_command(self) -> list[str]:
        """Build the command that runs the cluster."""
        gates = ",".join(f"{gate}=true" for gate in GATES)
        calls = ["bench.scheduler.calls", str(self.calls_file)] if self.calls_file else ["dray.cli"]
        command = [*self.wrapped, sys.executable, "-m", *calls, "up", "--nodes", "0", "--port", "0"]
        command += ["--data-dir", str(self.folder / "data"), "--feature-gates", gates]
        command += ["--processes", self.processes]
        return command if self.token_file is None else [*command, "--token-file", str(self.token_file)]


class Cluster(Measured):
    """A running cluster."""

    def __init__(self, options: ClusterOptions) -> None:
        self.kubeconfig = options.folder / "data" / "admin.kubeconfig"
        self.log = options.folder / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(options.build_command(), stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.kubeconfig.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the cluster did not start:\n{self.log.read_text('utf-8')}")
            time.sleep(0.01)
        self.address = Address.of_kubeconfig(self.kubeconfig)


@contextmanager
def running(options: ClusterOptions) -> Iterator[Cluster]:
    cluster = Cluster(options)
    try:
        yield cluster
    finally:
        cluster.stop()
