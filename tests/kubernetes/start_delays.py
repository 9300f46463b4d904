"""How long pods wait for devices under a kubelet, where the driver cannot prepare them at the first call.

    DRAY_KUBE_BIN=DIR python -m tests.kubernetes.start_delays

prints the seconds from the moment that a pod could start until its container runs: with the kit as it is, and
with a driver that refuses at once instead of waiting inside of the call. The scenarios are those of
`SCENARIOS`; `test_driver_delays` runs them, too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.contract.documents import claim, device_class, pod
from tests.contract.etcd_server import free_port
from tests.e2e.kubectl import Kubectl
from tests.faults.living.driver import DEVICES_VARIABLE
from tests.faults.living.processes import list_living
from tests.faults.living.sites import NODE, build_driver_command
from tests.kubernetes.control_plane import ControlPlane, Program
from tests.kubernetes.images import IMAGE
from tests.kubernetes.kubelet_node import KubeletNode, open_kubelet_node

LONGEST = 240.0
AWAY_SECONDS = 14.0
"""Longer than one attempt to read a claim takes."""
USUAL_CONFIG = {"syncFrequency": "1m"}
"""How often a kubelet tries again is what this is about; other tests want it to be quick."""


class Line:
    """A way to the server that can be cut: a port that passes everything on."""

    def __init__(self, port: int) -> None:
        self._target, self.port = port, free_port()
        self._ends: list[socket.socket] = []
        self._listener: socket.socket | None = None

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and end those that are open."""
        if self._listener is not None:
            self._ends.append(self._listener)
        for each in self._ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._ends.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._ends += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class DelayedStarts:
    """A node with one device, and a driver whose way to the server can be cut."""

    def __init__(self, plane: ControlPlane, node: KubeletNode, broken: str = "") -> None:
        self.plane, self.node = plane, node
        self.kubectl: Kubectl = plane.build_kubectl()
        self.journal = plane.folder / f"journal-{broken.replace(' ', '-') or 'whole'}"
        self.line = Line(plane.port)
        self.line.open()
        document = json.loads(plane.kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.line.port}"
        kubeconfig = plane.folder / "line.kubeconfig"
        kubeconfig.write_text(json.dumps(document))
        command = build_driver_command(
            self.journal, broken, kubelet_dir=node.kubelet_dir, cdi_dir=node.cdi_dir, kubeconfig=kubeconfig
        )
        self._registered = self._count_registrations()
        self.driver: Program = plane.add_command(command, "driver", {DEVICES_VARIABLE: "1"})
        self.kubectl("apply", "-f", "-", given=device_class())

    def _count_registrations(self) -> int:
        log = self.plane.folder / "driver.log"
        return log.read_text().count("registered with the agent") if log.exists() else 0

    def is_registered(self) -> bool:
        """Whether the kubelet knows this process of the driver, and the scheduler its device."""
        slices = self.kubectl.get("resourceslices")["items"]
        return bool(slices) and self._count_registrations() > self._registered

    def close(self) -> None:
        self.driver.stop()
        self.line.cut()

    def create_claim(self, name: str) -> None:
        self.kubectl("create", "-f", "-", given=claim(name))

    def create_pod(self, name: str, claim_name: str, config_map: str = "") -> None:
        document = pod(name, claim_name=claim_name)
        command = ["sh", "-c", "trap '' TERM; sleep 100000 & wait; sleep 100000"]
        document["spec"]["containers"][0] |= {"image": IMAGE, "command": command}
        document["spec"]["terminationGracePeriodSeconds"] = 3
        if config_map:
            document["spec"]["volumes"] = [{"name": "v", "configMap": {"name": config_map}}]
            document["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/tmp"}]
        self.kubectl("create", "-f", "-", given=document)

    def wait_until(self, is_so: Callable[[], bool]) -> float:
        """Wait, and return the seconds that it took."""
        began = time.monotonic()
        while not is_so():
            assert time.monotonic() < began + LONGEST, self.explain()
            time.sleep(0.2)
        return time.monotonic() - began

    def has_run(self, name: str) -> bool:
        return bool(self.kubectl.get("pod", name)["status"].get("phase") == "Running")

    def is_free(self) -> bool:
        return not list(list_living(self.journal)) and not list(self.node.cdi_dir.iterdir())

    def is_reserved(self, claim_name: str, count: int) -> bool:
        found = self.kubectl.get("resourceclaim", claim_name)["status"]
        return len(found.get("reservedFor") or ()) == count

    def count_failures(self, name: str) -> int:
        """How often the kubelet was refused, as its events say."""
        uid = self.kubectl.get("pod", name)["metadata"]["uid"]
        events = self.kubectl.get("events", "--field-selector", f"involvedObject.uid={uid}")["items"]
        failed = [each for each in events if each["reason"] == "FailedPrepareDynamicResources"]
        return sum(each.get("count", 1) for each in failed)

    def explain(self) -> str:
        return f"{self.kubectl('describe', 'pods').out}{self.driver.read_log_end()}"

    def end(self) -> None:
        """Delete pods and claims, and wait until the node has given everything back."""
        self.kubectl("delete", "pod", "--all", "--grace-period=1")
        self.kubectl("delete", "resourceclaim", "--all")
        self.wait_until(self.is_free)


def run_shared_claim(at: DelayedStarts) -> float:
    """A claim is given back by its first pod while the second, which reserves it already, is not prepared."""
    at.create_claim("shared")
    at.create_pod("first", "shared")
    at.wait_until(lambda: at.has_run("first"))
    # A kubelet prepares devices when all volumes are there.
    at.create_pod("second", "shared", config_map="late")
    at.wait_until(lambda: at.is_reserved("shared", 2))
    at.kubectl("delete", "pod", "first", "--grace-period=1")
    at.wait_until(at.is_free)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    at.kubectl("create", "-f", "-", given=config_map)
    seconds = at.wait_until(lambda: at.has_run("second"))
    at.kubectl("delete", "configmap", "late")
    return seconds


def run_held_device(at: DelayedStarts) -> float:
    """A pod is deleted by force, and the next one gets its device while the container still runs."""
    at.create_claim("one")
    at.create_pod("first", "one")
    at.wait_until(lambda: at.has_run("first"))
    at.create_claim("two")
    at.create_pod("second", "two")
    at.kubectl("delete", "pod", "first", "--grace-period=0", "--force")
    at.kubectl("delete", "resourceclaim", "one", "--wait=false")
    at.kubectl(
        "patch", "resourceclaim", "one", "--type=merge", "-p", '{"metadata":{"finalizers":null}}', fails=None
    )
    return at.wait_until(lambda: at.has_run("second"))


def run_server_away(at: DelayedStarts) -> float:
    """The driver cannot reach the API server for a moment; the kubelet can."""
    at.create_claim("one")
    at.line.cut()
    timer = threading.Timer(AWAY_SECONDS, at.line.open)
    timer.start()
    at.create_pod("second", "one")
    seconds = at.wait_until(lambda: at.has_run("second"))
    timer.join()
    return seconds


SCENARIOS: dict[str, Callable[[DelayedStarts], float]] = {
    "a shared claim was just given back": run_shared_claim,
    "the device is held after a force delete": run_held_device,
    f"the API is away for {AWAY_SECONDS:.0f} s": run_server_away,
}


@contextmanager
def open_delayed_starts(plane: ControlPlane, node: KubeletNode, broken: str = "") -> Iterator[DelayedStarts]:
    at = DelayedStarts(plane, node, broken)
    try:
        at.wait_until(at.is_registered)
        yield at
        at.end()
    finally:
        at.close()


def main() -> int:
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="dray-") as folder, ControlPlane.open(Path(folder)) as plane:
        plane.start_controllers("--leader-elect=false")
        plane.start_scheduler()
        with open_kubelet_node(plane, NODE, config=USUAL_CONFIG) as node:
            for broken in ("", "does not wait"):
                for name, run in SCENARIOS.items():
                    with open_delayed_starts(plane, node, broken) as at:
                        seconds = run(at)
                        refused = at.count_failures("second")
                    print(f"{broken or 'waits'}: {name}: {seconds:.1f} s, refused {refused}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
