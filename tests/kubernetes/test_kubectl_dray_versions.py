"""`kubectl dray` on servers that serve other versions of the API for devices, or none."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.binaries import require_program
from tests.kubernetes.control_plane import ApiServerOptions, ControlPlane
from tests.kubernetes.test_kubectl_dray import VIEWER, build_plugin

SLICE = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, basic: {attributes: {model: {string: a100}}}}]
---
apiVersion: resource.k8s.io/v1beta1
kind: DeviceClass
metadata: {name: gpu}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}
"""
SERVED = {
    "as 1.34": ApiServerOptions(emulated_version="1.34"),
    "v1beta2": ApiServerOptions(flags=("--runtime-config=resource.k8s.io/v1=false",)),
    "v1beta1": ApiServerOptions(
        flags=("--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta2=false",)
    ),
}
NONE = ApiServerOptions(
    flags=tuple(
        f"--runtime-config=resource.k8s.io/{version}=false"
        for version in ("v1", "v1beta2", "v1beta1", "v1alpha3")
    )
)


class PartialPlane(ControlPlane):
    """An API server without `resource.k8s.io/v1`, whose own node authorizer waits for it for ever."""

    def is_ready(self) -> bool:
        context = ssl.create_default_context(cadata=self._certificates.ca_pem.decode())
        path = f"{self.url}/readyz?exclude=informer-sync"
        try:
            with urllib.request.urlopen(path, context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.mark.parametrize("name", SERVED)
def test_devices_are_read_in_the_version_that_is_served(name: str, tmp_path: Path) -> None:
    require_program("kube-apiserver")
    with PartialPlane.open(tmp_path, SERVED[name]) as plane:
        plane.create_node("node-a")
        kubectl = plane.build_kubectl("")
        for document in yaml.safe_load_all(SLICE):
            kubectl("apply", "-f", "-", given=document)
        kubectl("apply", "-f", str(VIEWER))
        kubectl("create", "clusterrolebinding", "vera", "--clusterrole=dray:viewer", "--user=vera")
        viewer = build_plugin(tmp_path, plane.write_kubeconfig("vera"))
        free = viewer("free")
        assert (free.returncode, free.stderr) == (0, "")
        assert free.stdout.splitlines()[1] == "node-a   gpu.example.com   1/1    gpu-0"
        assert viewer("explain", "claim/c").stdout.startswith("Claim default/c fits node-a")
        lint = viewer("lint", "--live")
        assert (lint.returncode, lint.stderr) == (0, "")
        assert lint.stdout.startswith("checked 3 objects of the cluster: ")


def test_a_server_without_the_group_is_called_that(tmp_path: Path) -> None:
    require_program("kube-apiserver")
    with PartialPlane.open(tmp_path, NONE) as plane:
        plane.create_node("node-a")
        plugin = build_plugin(tmp_path, plane.kubeconfig)
        words = "dray: the server does not serve the API group `resource.k8s.io`, so there are no devices"
        free = plugin("free")
        assert (free.returncode, free.stdout) == (2, "")
        assert free.stderr.startswith(words)
        status = plugin("status")
        assert (status.returncode, status.stdout.splitlines()[1]) == (0, "node-a   ready   0")
        assert status.stderr.startswith(words)
        assert status.stderr.count("\n") == 1
