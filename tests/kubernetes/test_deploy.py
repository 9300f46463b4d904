"""kube-apiserver accepts every object of `deploy/` strictly, and what is applied twice stays as it is."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

from dray.x509_certificates import build_authority, encode_certificate_pem, generate_key
from tests.deploy.rendering import (
    NODE_TOOLS,
    Manifest,
    list_manifest_names,
    read_base,
    read_manifests,
    render_chart,
)
from tests.e2e.kubectl import Kubectl
from tests.kubernetes.control_plane import ControlPlane


@pytest.fixture
def kubectl(plane: ControlPlane) -> Kubectl:
    """Without a namespace: the objects name theirs."""
    return plane.build_kubectl("")


def apply(kubectl: Kubectl, objects: list[Manifest], *options: str) -> list[str]:
    lines = kubectl("apply", "--validate=strict", "-f", "-", *options, given=objects).out.splitlines()
    assert len(lines) == len(objects), lines
    return lines


@pytest.mark.parametrize("name", list_manifest_names())
def test_a_manifest_is_accepted(kubectl: Kubectl, name: str) -> None:
    apply(kubectl, read_manifests(name), "--dry-run=server")


def test_the_chart_is_accepted(kubectl: Kubectl) -> None:
    apply(
        kubectl,
        render_chart("--set=controller.enabled=true", "--set=nodeTools.enabled=true"),
        "--dry-run=server",
    )


def test_applying_twice_changes_nothing(kubectl: Kubectl) -> None:
    objects = [*read_base(), *read_manifests(NODE_TOOLS)]
    apply(kubectl, objects)
    before = kubectl("get", "-f", "-", "-o", "json", given=objects).document
    changed = [line for line in apply(kubectl, objects) if not line.endswith("unchanged")]
    # kubectl sends the selector of a PodDisruptionBudget each time, because it is to be replaced as a whole.
    assert changed == ["poddisruptionbudget.policy/dray-guard configured"]
    assert kubectl("get", "-f", "-", "-o", "json", given=objects).document == before


def test_applying_again_keeps_the_authorities_that_the_guard_wrote(kubectl: Kubectl) -> None:
    """Otherwise every upgrade would refuse allocations until the guard has written them again."""
    objects = read_manifests("guard.yaml")
    apply(kubectl, objects)
    authority = build_authority("test", generate_key(), datetime.now(UTC), timedelta(days=1))
    bundle = base64.b64encode(encode_certificate_pem(authority)).decode()
    added = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}
    hook = ("validatingwebhookconfiguration", "dray-guard")
    kubectl("patch", *hook, "--type=json", "-p", json.dumps([added]))
    apply(kubectl, objects)
    (webhook,) = kubectl.get(*hook)["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == bundle
