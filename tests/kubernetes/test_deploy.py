"""kube-apiserver accepts every object of `deploy/` strictly, and what is applied twice stays as it is."""

from __future__ import annotations

import pytest

from tests.deploy.rendering import DEPLOY, Manifest, read_base, read_manifests, render_chart
from tests.e2e.kubectl import Kubectl
from tests.kubernetes.control_plane import ControlPlane

PLAIN = sorted(path.name for path in DEPLOY.glob("*.yaml") if path.name != "kustomization.yaml")


@pytest.fixture
def kubectl(plane: ControlPlane) -> Kubectl:
    """Without a namespace: the objects name theirs."""
    return plane.build_kubectl("")


def apply(kubectl: Kubectl, objects: list[Manifest], *options: str) -> list[str]:
    lines = kubectl("apply", "--validate=strict", "-f", "-", *options, given=objects).out.splitlines()
    assert len(lines) == len(objects), lines
    return lines


@pytest.mark.parametrize("name", PLAIN)
def test_a_manifest_is_accepted(kubectl: Kubectl, name: str) -> None:
    apply(kubectl, read_manifests(name), "--dry-run=server")


def test_the_chart_is_accepted(kubectl: Kubectl) -> None:
    apply(kubectl, render_chart("--set=controller.enabled=true"), "--dry-run=server")


def test_applying_twice_changes_nothing(kubectl: Kubectl) -> None:
    apply(kubectl, read_base())
    assert all(line.endswith("unchanged") for line in apply(kubectl, read_base()))
