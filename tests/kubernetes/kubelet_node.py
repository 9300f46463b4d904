"""A node of a cluster: containerd and a kubelet with real containers, on this machine.

Needs root, runc and a static busybox. All files are in one folder with a short path, because the paths of
sockets are limited; containers have no network, only an address in their status.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.etcd_server import free_port
from tests.e2e.patience import until
from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import Program, ServerPlane, format_gates
from tests.kubernetes.images import IMAGE, require_busybox, write_image

_NETWORK_PLUGIN = """#!/bin/sh
# Containers of these tests use no network: every one of them is told the same address.
if [ "$CNI_COMMAND" = ADD ]; then
  echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "'"$CNI_NETNS"'"}],
         "ips": [{"address": "10.88.0.2/24", "interface": 0}]}'
elif [ "$CNI_COMMAND" = VERSION ]; then
  echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}'
else
  echo '{}'
fi
"""


class KubeletNode:
    """One node; `kubelet` and `containerd` can be killed and started again."""

    def __init__(
        self, plane: ServerPlane, name: str, root: Path, gates: Mapping[str, bool], config: Mapping[str, Any]
    ) -> None:
        self.plane = plane
        self.name = name
        self.root = root
        self._config = config
        self.kubelet_dir = root / "kubelet"
        self.cdi_dir = root / "cdi"
        self.socket = root / "containerd.sock"
        for folder in (self.kubelet_dir, self.cdi_dir, root / "net.d", root / "bin"):
            folder.mkdir(exist_ok=True)
        self._write_network()
        self.containerd = self._start_containerd()
        self._import_image()
        self.kubelet = self._start_kubelet(gates)

    def wait_until_ready(self) -> None:
        kubectl = self.plane.build_kubectl()

        def is_ready() -> bool:
            found = kubectl("get", "node", self.name, "-o", "json", fails=None)
            conditions = found.document["status"].get("conditions", []) if found.code == 0 else []
            return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

        until(is_ready, self.kubelet.read_log_end)

    def run_ctr(self, *arguments: str) -> str:
        """Ask containerd about containers, also while there is no kubelet."""
        command = [str(require_program("ctr")), "-a", str(self.socket), "-n", "k8s.io", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """End all containers, then containerd."""
        self.kubelet.kill()
        tasks = self.run_ctr("task", "ls", "-q").split()
        for task in tasks:
            command = [
                str(require_program("ctr")),
                "-a",
                str(self.socket),
                "-n",
                "k8s.io",
                "task",
                "rm",
                "-f",
                task,
            ]
            subprocess.run(command, check=False, capture_output=True)
        self.containerd.stop()
        _unmount_below(self.root)

    def _write_network(self) -> None:
        plugin = self.root / "bin" / "no-network"
        plugin.write_text(_NETWORK_PLUGIN)
        plugin.chmod(0o755)
        network = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "no-network"}]}
        (self.root / "net.d" / "10-none.conflist").write_text(json.dumps(network))

    def _start_containerd(self) -> Program:
        config = self.root / "containerd.toml"
        config.write_text(_build_containerd_config(self.root, self.cdi_dir, self.socket))
        program = require_program("containerd")
        path = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
        command = [str(program), "--config", str(config)]
        started = self.plane.add_command(command, f"containerd-{self.name}", path)
        until(lambda: self.socket.exists() and self._is_serving(), started.read_log_end)
        return started

    def _is_serving(self) -> bool:
        command = [str(require_program("ctr")), "-a", str(self.socket), "version"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _import_image(self) -> None:
        archive = write_image(self.root / "image.tar", require_busybox())
        self.run_ctr("image", "import", str(archive))

    def _start_kubelet(self, gates: Mapping[str, bool]) -> Program:
        config = self.root / "kubelet.json"
        config.write_text(json.dumps({**self._build_kubelet_config(), **self._config}))
        kubeconfig = self.plane.write_kubeconfig(f"system:node:{self.name}", "system:nodes")
        flags = [
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={self.kubelet_dir}",
            f"--cert-dir={self.root / 'pki'}",
            f"--hostname-override={self.name}",
            "--node-ip=127.0.0.1",
        ]
        if gates:
            flags.append(f"--feature-gates={format_gates(gates)}")
        return self.plane.add("kubelet", *flags, name=f"kubelet-{self.name}")

    def _build_kubelet_config(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": free_port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "podLogsDir": str(self.root / "logs"),
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
        }


@contextmanager
def open_kubelet_node(
    plane: ServerPlane,
    name: str = "node-a",
    gates: Mapping[str, bool] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[KubeletNode]:
    """Start a node and wait until it is ready; skip the test when this machine cannot run containers.

    `config` replaces fields of the kubelet's configuration.
    """
    if os.geteuid() != 0:
        pytest.skip("NO ROOT: a kubelet with containers needs it")
    for program in ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet"):
        require_program(program)
    if shutil.which("runc") is None:
        pytest.skip("NO RUNC: put `runc` on PATH")
    require_busybox()
    root = Path(tempfile.mkdtemp(prefix="kn-"))
    node = KubeletNode(plane, name, root, gates or {}, config or {})
    try:
        node.wait_until_ready()
        yield node
    finally:
        node.close()
        shutil.rmtree(root, ignore_errors=True)


def _unmount_below(root: Path) -> None:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in lines if line.split()[1].startswith(f"{root}/")]
    for point in sorted(points, reverse=True):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)


def _build_containerd_config(root: Path, cdi_dir: Path, socket: Path) -> str:
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""version = 3
root = '{root}/containerd'
state = '{root}/state'
[grpc]
  address = '{socket}'
[ttrpc]
  address = '{socket}.ttrpc'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'native'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{IMAGE}'
[{runtime}]
  enable_cdi = true
  cdi_spec_dirs = ['{cdi_dir}']
  restrict_oom_score_adj = true
[{runtime}.cni]
  bin_dirs = ['{root}/bin']
  conf_dir = '{root}/net.d'
  use_internal_loopback = true
"""
