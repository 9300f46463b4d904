"""Control planes for the churn: server, kube-scheduler and kube-controller-manager, each can be killed.

Both planes start the two programs of Kubernetes with the same flags: who they are, where they listen, and
which authority signs the server's certificate. All else is default: protobuf, leader election, controllers.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from tests.contract.etcd_server import free_port
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import MASTERS, ControlPlane, Program

SCHEDULER, CONTROLLERS, SERVER = "kube-scheduler", "kube-controller-manager", "server"


@dataclass(frozen=True)
class ChurnPlane:
    """Programs by name, and the kubeconfig of an administrator."""

    kubeconfig: Path
    programs: dict[str, Program]
    has_ledger: bool

    def kill(self, name: str) -> None:
        """End one of the programs like a power loss would, and start it again."""
        self.programs[name].kill()
        self.programs[name].start()


@contextmanager
def open_kubernetes_plane(folder: Path) -> Iterator[ChurnPlane]:
    with ControlPlane.open(folder) as plane, ExitStack() as stack:
        keys = CertificateAuthority.open_for_clients(folder / "keys")
        programs = _start_components(stack, folder, plane.url, keys)
        yield ChurnPlane(plane.kubeconfig, {SERVER: plane.api_server, **programs}, has_ledger=False)


@contextmanager
def open_dray_plane(folder: Path) -> Iterator[ChurnPlane]:
    folder.mkdir(parents=True, exist_ok=True)
    data, port = folder / "data", free_port()
    arguments = [sys.executable, "-m", "dray", "server", "--data-dir", str(data), "--port", str(port)]
    kubeconfig = data / "admin.kubeconfig"
    server = Program(arguments, folder / "dray-server.log")
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.start()
        until(kubeconfig.exists, server.read_log_end)
        keys = CertificateAuthority.open_for_clients(data / "keys")
        programs = _start_components(stack, folder, f"https://127.0.0.1:{port}", keys)
        yield ChurnPlane(kubeconfig, {SERVER: server, **programs}, has_ledger=True)


PLANES = {"kubernetes": open_kubernetes_plane, "dray": open_dray_plane}


def _start_components(
    stack: ExitStack, folder: Path, url: str, keys: CertificateAuthority
) -> dict[str, Program]:
    """Start both; without accounts of its own for each controller, the manager needs all rights."""
    programs = {}
    for name, groups, more in (
        (SCHEDULER, (), ()),
        (CONTROLLERS, (MASTERS,), (f"--root-ca-file={keys.ca_file}",)),
    ):
        made = keys.issue_client_certificate(f"system:{name}", groups, days=2)
        kubeconfig = folder / f"{name}.kubeconfig"
        kubeconfig.write_text(json.dumps(build_kubeconfig(url, keys.ca_pem, made, user=name)))
        listening = ("--bind-address=127.0.0.1", f"--secure-port={free_port()}")
        flags = (f"--kubeconfig={kubeconfig}", *listening, f"--cert-dir={folder / 'serving'}", *more)
        program = Program([str(require_program(name)), *flags], folder / f"{name}.log")
        stack.callback(program.stop, signal.SIGKILL)
        program.start()
        programs[name] = program
    return programs
