"""The process of the agents, from outside: started, ready, and stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench.agents.credentials import NodeTokens
from bench.processes import Measured

READY: Final = b"ready\n"


class AgentProcess(Measured):
    """Agents and drivers of many nodes in a process of their own."""

    def __init__(self, kubeconfig: Path, folder: Path, nodes: Sequence[NodeTokens]) -> None:
        """Return when every node is ready and every driver has published its devices."""
        job = {"kubeconfig": str(kubeconfig), "folder": str(folder), "nodes": nodes}
        self.log = folder.with_suffix(".log")
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "bench.agents"]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(job) + b"\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != READY:
            self.process.wait()
            raise SystemExit(f"the agents ended:\n{self.log.read_text('utf-8', 'replace')[-2000:]}")


@contextmanager
def running_agents(kubeconfig: Path, folder: Path, nodes: Sequence[NodeTokens]) -> Iterator[AgentProcess]:
    """Run agents while the block lasts."""
    agents = AgentProcess(kubeconfig, folder, nodes)
    try:
        yield agents
    finally:
        agents.stop()
