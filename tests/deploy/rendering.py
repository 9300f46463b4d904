"""Renders what `deploy/` has: the plain manifests, the kustomize base, and the Helm chart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from dray.cli.app import dray as root_command
from tests.outside import ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart" / "dray"
NODE_TOOLS = "components/node-tools/node-tools.yaml"
Manifest = dict[str, Any]
HELM_LABELS = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
NO_HELM = "no `helm` on PATH; `make` installs one on Linux x86-64"


def find_program(name: str) -> str | None:
    """A program beside this Python, where wheels put theirs, or on PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return shutil.which(name, path=places)


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = find_program("helm")
    if program is None:
        pytest.skip(NO_HELM)
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def render_chart(*options: str) -> list[Manifest]:
    """The objects of the chart, as a release in kube-system."""
    done = run_helm(
        "template", "dray", str(CHART), "--namespace", "kube-system", "--kube-version", "1.37.0", *options
    )
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def render_kustomization(folder: Path) -> list[Manifest]:
    """The objects of a kustomization, as kubectl renders them."""
    program = find_program("kubectl")
    if program is None:
        pytest.skip("no `kubectl` on PATH")
    done = subprocess.run(
        [program, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def read_base() -> list[Manifest]:
    """The objects of the kustomize base, read without kubectl: it lists files and changes nothing."""
    base = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text("utf-8"))
    assert base.keys() == {"apiVersion", "kind", "resources"}
    return [each for name in base["resources"] for each in read_manifests(name)]


def list_manifest_names() -> list[str]:
    """The plain manifests, those of components too."""
    found = [*DEPLOY.glob("*.yaml"), *DEPLOY.glob("components/*/*.yaml")]
    return sorted(str(path.relative_to(DEPLOY)) for path in found if path.name != "kustomization.yaml")


def read_manifests(name: str) -> list[Manifest]:
    return parse_manifests((DEPLOY / name).read_text("utf-8"))


def parse_manifests(text: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(text) if each]


def normalise(manifests: Iterable[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """Objects by kind, namespace and name, without the labels that Helm wants."""
    found: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        meta = dict(manifest["metadata"])
        labels = {name: value for name, value in meta.pop("labels", {}).items() if name not in HELM_LABELS}
        key = (manifest["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in found, f"{key} twice"
        found[key] = {**manifest, "metadata": {**meta, **({"labels": labels} if labels else {})}}
    return found


def list_pod_specs(manifests: Iterable[Manifest]) -> list[Manifest]:
    workloads = ("Deployment", "DaemonSet", "Job")
    return [each["spec"]["template"]["spec"] for each in manifests if each["kind"] in workloads]


def parse_arguments(arguments: list[str]) -> None:
    """Parse as the command line does, without running; raises `click.UsageError`."""
    command: click.Command = root_command
    context, rest = click.Context(command), list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, rest)
