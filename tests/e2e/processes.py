"""A cluster of processes that share nothing but the API: server, scheduler, controller, classic drivers."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.classic import classic_class
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import SOON, ended, until
from tests.e2e.server import Running, command, running

"""Seconds in which a process is ready, and in which whatever a cluster does by itself is done."""

_numbers = itertools.count(1)


@dataclass
class Process:
    """A program that can be stopped, killed and started again."""

    arguments: Sequence[str]
    log: Path
    ready: str
    """What it says when it works."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        said = self.log.read_text().count(self.ready) if self.log.exists() else 0
        with self.log.open("ab") as lines:
            self._process = subprocess.Popen(
                self.arguments, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL
            )
        until(lambda: self.log.read_text().count(self.ready) > said, self.log.read_text)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        ended(self._process, how)
        self._process = None


class Cluster:
    """Processes and where they are."""

    def __init__(self, folder: Path, server: Running, stack: ExitStack) -> None:
        self.folder = folder
        self.server = server
        self._stack = stack

    def credentials(self, user: str, *groups: str) -> Path:
        """A kubeconfig of somebody."""
        file = self.folder / f"{next(_numbers)}.kubeconfig"
        data = str(self.server.kubeconfig.parent)
        arguments = [word for group in groups for word in ("--group", group)]
        made = subprocess.run(
            command("server", "credentials", user, *arguments, "--data-dir", data),
            capture_output=True,
            text=True,
            timeout=SOON,
            check=True,
        )
        file.write_text(made.stdout)
        return file

    def service(self, name: str, user: str, *options: str) -> Process:
        """`dray scheduler` or `dray controller`, with the rights of its role."""
        kubeconfig = str(self.credentials(user))
        arguments = command(name, "--kubeconfig", kubeconfig, "--no-leader-elect", *options)
        return self._started(Process(arguments, self.folder / f"{name}.log", f"{name} for "))

    def driver(
        self, kubectl: Kubectl, name: str, capacity: str, *options: str, **parameters: object
    ) -> Process:
        """A classic driver with a class of the same name, and with the rights of a driver."""
        kubectl("apply", "-f", "-", given=classic_class(name, name, **parameters))
        kubeconfig = str(self.credentials(name, f"dray:driver:{name}", "classic-drivers"))
        program = (sys.executable, "-m", "tests.e2e.classic_driver", "--kubeconfig", kubeconfig)
        arguments = (*program, "--driver", name, "--capacity", capacity, *options)
        return self._started(Process(arguments, self.folder / f"{name}.log", f"{name} is ready"))

    def _started(self, process: Process) -> Process:
        self._stack.callback(process.stop)
        process.start()
        return process


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    """A server, and whatever is started beside it until the block ends."""
    with running(folder, *options) as server, ExitStack() as stack:
        yield Cluster(folder, server, stack)
