"""Control planes for the churn: server, kube-scheduler and kube-controller-manager, each can be killed.

Both planes start the two programs of Kubernetes with the same flags: who they are, where they listen, and
which authority signs the server's certificate. All else is default: protobuf, leader election, controllers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.control_plane import ControlPlane, Program, ServerPlane
from tests.kubernetes.dray_plane import DrayPlane

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


SERVICE_ACCOUNTS = "--use-service-account-credentials=true"
"""The flag with which each controller has an account and rights of its own, as most clusters run it."""


@contextmanager
def open_kubernetes_plane(folder: Path, *flags: str) -> Iterator[ChurnPlane]:
    """Start Kubernetes; the flags are those of kube-controller-manager."""
    with ControlPlane.open(folder) as plane:
        yield _start_components(plane, flags, has_ledger=False)


@contextmanager
def open_dray_plane(folder: Path, *flags: str) -> Iterator[ChurnPlane]:
    """Start a server of dray with the rest of Kubernetes; the flags are those of kube-controller-manager."""
    with DrayPlane.open(folder) as plane:
        yield _start_components(plane, flags, has_ledger=True)


PLANES = {"kubernetes": open_kubernetes_plane, "dray": open_dray_plane}


def _start_components(plane: ServerPlane, flags: tuple[str, ...], has_ledger: bool) -> ChurnPlane:
    """Start both; without accounts of its own for each controller, the manager needs all rights."""
    programs = {
        SERVER: plane.api_server,
        SCHEDULER: plane.start_scheduler("--leader-elect=true"),
        CONTROLLERS: plane.start_controllers(*flags),
    }
    return ChurnPlane(plane.kubeconfig, programs, has_ledger)
