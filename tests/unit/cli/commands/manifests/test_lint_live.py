"""`dray lint --live`: the objects of a server, and files against its devices and classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.client.client import Client
from tests.unit.cli.conftest import Typed
from tests.unit.cli.serving import served, through

OBJECTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: a100}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: typo, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].modell == "a100"'}}]}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: lost, namespace: kube-system}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus}}]}}
"""

FILE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: %s,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "%s"'}}]}}]}}
"""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("server")) as file:

        async def create(client: Client) -> None:
            for document in yaml.safe_load_all(OBJECTS):
                await client.create(document)

        through(file, create)
        yield str(file)


def list_findings(out: str) -> list[tuple[str, str, str]]:
    found: list[dict[str, Any]] = json.loads(out)["findings"]
    return [(each["source"], each["rule"], each["severity"]) for each in found]


def test_the_objects_of_the_cluster(typed: Typed, kubeconfig: str) -> None:
    ended = typed("lint", "--live", "--kubeconfig", kubeconfig, "-o", "json")
    assert (ended.code, ended.err) == (1, "")
    assert list_findings(ended.out) == [
        ("live:resourceclaims/default/typo", "unknown-attribute", "warning"),
        ("live:resourceclaims/kube-system/lost", "unknown-class", "error"),
    ]
    text = typed("lint", "--live", "--kubeconfig", kubeconfig)
    assert "DeviceClass `gpus` is not in the cluster" in text.out
    assert "hint: did you mean `gpu`?" in text.out
    assert "checked 4 objects of the cluster: 1 error, 1 warning" in text.out


def test_one_namespace(typed: Typed, kubeconfig: str) -> None:
    ended = typed("lint", "--live", "--kubeconfig", kubeconfig, "-o", "json", "-n", "default")
    assert ended.code == 0
    assert [source for source, _, _ in list_findings(ended.out)] == ["live:resourceclaims/default/typo"]


def test_files_are_checked_against_the_cluster_whose_own_findings_are_left_out(
    typed: Typed, kubeconfig: str, desk: Path
) -> None:
    (desk / "good.yaml").write_text(FILE % ("good", "gpu", "a100"))
    good = typed("lint", "--live", "--kubeconfig", kubeconfig, "good.yaml")
    assert (good.code, good.err) == (0, "")
    assert good.out == (
        "checked 1 object in 1 file against 4 objects of the cluster: nothing to complain about\n"
    )
    (desk / "bad.yaml").write_text(FILE % ("bad", "gpu", "h100") + "---" + FILE % ("worse", "gpux", "a100"))
    bad = typed("lint", "--live", "--kubeconfig", kubeconfig, "bad.yaml", "-o", "json")
    assert list_findings(bad.out) == [
        ("bad.yaml", "selector-never-true", "warning"),
        ("bad.yaml", "unknown-class", "warning"),
    ]
    assert "is not among these manifests or in the cluster" in bad.out


def test_an_object_in_a_file_takes_the_place_of_the_one_in_the_cluster(
    typed: Typed, kubeconfig: str, desk: Path
) -> None:
    (desk / "f.yaml").write_text(FILE % ("typo", "gpu", "a100"))
    ended = typed("lint", "--live", "--kubeconfig", kubeconfig, "f.yaml", "-o", "json")
    assert (ended.code, list_findings(ended.out)) == (0, [])


def test_options_of_servers_need_live(typed: Typed, kubeconfig: str, desk: Path) -> None:
    (desk / "f.yaml").write_text(FILE % ("typo", "gpu", "a100"))
    ended = typed("lint", "f.yaml", "--kubeconfig", kubeconfig)
    assert (ended.code, ended.out) == (2, "")
    assert "are for `--live`" in ended.err
