"""Places where containers live: a kubelet with containerd on Kubernetes, or dray's agent on dray's server."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.contract.etcd_server import free_port
from tests.e2e.patience import until
from tests.e2e.processes import emptied
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node

NODE = "node-a"


class Site(Protocol):
    """A cluster with one node, whose parts can be killed and started again."""

    what: str
    kubeconfig: Path
    cdi: Path
    image: str
    agent: Program
    driver: Program
    server: Program

    def wait_for_server(self) -> None:
        """Wait until the server answers."""
        ...

    def read_logs(self) -> str:
        """The ends of all logs, for a failure."""
        ...


def build_driver_command(journal: Path, broken: str, **options: Path) -> list[str]:
    """The command of the driver in `driver`, on the node."""
    flags = [word for name, place in options.items() for word in (f"--{name.replace('_', '-')}", str(place))]
    program = [sys.executable, "-m", "tests.faults.living.driver", str(journal), broken or "-"]
    return [*program, "--node", NODE, *flags]


class KubeletSite:
    """Kubernetes' own programs."""

    what = "kubelet"
    image = IMAGE

    def __init__(self, plane: ControlPlane, node: KubeletNode, driver: Program) -> None:
        self._plane = plane
        self.node = node
        self.kubeconfig, self.cdi = plane.kubeconfig, node.cdi_dir
        self.agent, self.driver, self.server = node.kubelet, driver, plane.api_server

    def wait_for_server(self) -> None:
        self._plane.wait_until_ready()

    def read_logs(self) -> str:
        return "\n".join(each.read_log_end() for each in (self.agent, self.driver, self.server))


@contextmanager
def open_kubelet_site(folder: Path, broken: str = "") -> Iterator[KubeletSite]:
    """Start etcd, API server, controllers, scheduler, containerd, kubelet and the driver."""
    with ControlPlane.open(folder) as plane:
        plane.start_controllers("--leader-elect=false")
        plane.start_scheduler()
        with open_kubelet_node(plane, NODE) as node:
            command = build_driver_command(
                folder / "journal",
                broken,
                kubelet_dir=node.kubelet_dir,
                cdi_dir=node.cdi_dir,
                kubeconfig=plane.kubeconfig,
            )
            yield KubeletSite(plane, node, plane.add_command(command, "driver"))


class AgentSite:
    """`dray up` without nodes, `dray node` with containers that are processes."""

    what = "dray node"
    image = "none"

    def __init__(self, folder: Path, root: Path, broken: str) -> None:
        data, port = folder / "data", free_port()
        self.kubeconfig, self.cdi = data / "admin.kubeconfig", root / "cdi"
        dray, access = [sys.executable, "-m", "dray"], ["--kubeconfig", str(self.kubeconfig)]
        up = [*dray, "up", "--nodes", "0", "--port", str(port), "--data-dir", str(data)]
        node = [*dray, "node", "--name", NODE, "--root", str(root), "--cdi-dir", str(self.cdi), "--port", "0"]
        driver = build_driver_command(
            folder / "journal", broken, kubelet_dir=root, cdi_dir=self.cdi, kubeconfig=self.kubeconfig
        )
        self.server = Program(up, folder / "server.log")
        self.agent = Program([*node, *access], folder / "agent.log")
        self.driver = Program(driver, folder / "driver.log")
        self.parts: Sequence[Program] = (self.driver, self.agent, self.server)

    def wait_for_server(self) -> None:
        until(self.kubeconfig.exists, self.server.read_log_end)

    def read_logs(self) -> str:
        return "\n".join(each.read_log_end() for each in self.parts)


@contextmanager
def open_agent_site(folder: Path, broken: str = "") -> Iterator[AgentSite]:
    """Start server, agent and driver, and end all containers in the end."""
    root = Path(tempfile.mkdtemp(prefix="dray-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        stack.callback(emptied, root / "containers")
        site = AgentSite(folder, root, broken)
        for part in reversed(site.parts):
            stack.callback(part.stop, signal.SIGKILL)
            part.start()
            site.wait_for_server()
        yield site


SITES: Mapping[str, Callable[[Path, str], AbstractContextManager[Site]]] = {
    "dray node": open_agent_site,
    "kubelet": open_kubelet_site,
}
