"""A cluster of processes that share nothing but the API: server, scheduler, controller, nodes, drivers."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dray.node.containers.runtime.process import ProcessRuntime
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from tests.contract.classic import classic_class
from tests.e2e.kubectl import Kubectl
from tests.e2e.patience import ended, until
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

    def send(self, how: signal.Signals) -> None:
        """Send a signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(how)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        ended(self._process, how)
        self._process = None


@dataclass(frozen=True)
class Node:
    """A node agent, and where its files are."""

    name: str
    root: Path
    agent: Process


def emptied(containers: Path) -> None:
    """End what runs of an agent's containers: they outlive it."""

    async def empty() -> None:
        runtime = ProcessRuntime(containers)
        for found in await runtime.list_containers():
            await runtime.remove(found.id)
        await runtime.close()

    asyncio.run(empty())


class Cluster:
    """Processes and where they are."""

    def __init__(self, folder: Path, server: Running, stack: ExitStack) -> None:
        self.folder = folder
        self.server = server
        self._stack = stack

    def credentials(self, user: str, *groups: str) -> Path:
        """A kubeconfig of somebody."""
        file = self.folder / f"{next(_numbers)}.kubeconfig"
        certificates = CertificateAuthority.open_for_clients(self.server.kubeconfig.parent / "keys")
        made = certificates.issue_client_certificate(user, groups, days=1)
        document = build_kubeconfig(self.server.url, certificates.ca_pem, made, user=user)
        file.write_text(json.dumps(document))
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

    def node(self, name: str, *options: str, kubeconfig: Path | None = None) -> Node:
        """`dray node` in the name of the node, with its files in a folder whose path is short."""
        root = Path(tempfile.mkdtemp(prefix="dray-"))
        self._stack.callback(shutil.rmtree, root, ignore_errors=True)
        self._stack.callback(emptied, root / "containers")
        file = str(kubeconfig or self.credentials(f"system:node:{name}", "system:nodes"))
        arguments = command("node", "--name", name, "--kubeconfig", file, "--root", str(root))
        # Devices of the tests are files of the user who runs them.
        more = ("--port", "0", "--cdi-dir", str(root / "cdi"), "--container-user", "agent", *options)
        process = Process((*arguments, *more), self.folder / f"{name}.log", "the agent takes pods")
        return Node(name, root, self._started(process))

    def plain_driver(self, kubectl: Kubectl, node: Node, name: str, *options: str) -> Process:
        """A driver that was not written with the kit, with a class of its devices."""
        chosen = {"cel": {"expression": f'device.driver == "{name}"'}}
        device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}}
        kubectl("apply", "-f", "-", given={**device_class, "spec": {"selectors": [chosen]}})
        groups = (f"dray:driver:{name}", "dray:drivers", f"dray:on-node:{node.name}")
        kubeconfig = str(self.credentials(name, *groups))
        (node.root / "cdi").mkdir(mode=0o700, exist_ok=True)
        places = ("--registry", node.root / "plugins_registry", "--plugins", node.root / "plugins")
        program = (sys.executable, "-m", "tests.e2e.plain_driver", "--name", name, "--node", node.name)
        arguments = (*program, *map(str, places), "--cdi-dir", str(node.root / "cdi"))
        given = (*arguments, "--kubeconfig", kubeconfig, *options)
        return self._started(Process(given, self.folder / f"{name}.log", f"{name} is ready"))

    def kit_driver(self, node: Node | None, name: str, program: Sequence[str], **environment: str) -> Process:
        """A driver of the kit, a module or a file that Python runs; without a node it only publishes."""
        if node is None:
            groups: tuple[str, ...] = (f"dray:driver:{name}", "dray:drivers")
            places: tuple[str, ...] = ("--no-node",)
        else:
            groups = (f"dray:driver:{name}", "dray:drivers", f"dray:on-node:{node.name}")
            (node.root / "cdi").mkdir(mode=0o700, exist_ok=True)
            folders = {"plugins": "plugins", "plugins-registry": "plugins_registry", "cdi-dir": "cdi"}
            named = [word for flag, at in folders.items() for word in (f"--{flag}", str(node.root / at))]
            places = ("--node", node.name, *named)
        given = [f"{variable}={value}" for variable, value in environment.items()]
        kubeconfig = str(self.credentials(name, *groups))
        arguments = ("env", *given, sys.executable, *program, "run", "--kubeconfig", kubeconfig, *places)
        log = self.folder / f"{name}-{node.name if node else 'no-node'}.log"
        return self._started(Process(arguments, log, "devices are published"))

    def _started(self, process: Process) -> Process:
        self._stack.callback(process.stop)
        process.start()
        return process


@contextmanager
def cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    """A server, and whatever is started beside it until the block ends."""
    with running(folder, *options) as server, ExitStack() as stack:
        yield Cluster(folder, server, stack)
