"""The small cluster is in order, every broken example breaks one rule, and the tour runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dray.lint import Severity
from tests.outside import ROOT
from tests.unit.examples.linted import EXAMPLES, findings, format_finding, manifests

BROKEN = {
    "flattened-request.yaml": ("error", "old-flat-request", "spec.devices.requests[0]", "exactly:"),
    "old-pod.yaml": (
        "error",
        "old-claim-source",
        "spec.resourceClaims[0].source",
        "resourceClaimTemplateName: any-gpu",
    ),
    "same-device-twice.yaml": ("error", "device-twice", "spec.devices[0].name", "`gpu-0`"),
    "selector-does-not-compile.yaml": (
        "error",
        "selector-broken",
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        "did you mean `attributes`?",
    ),
    "selector-without-guard.yaml": (
        "warning",
        "selector-unguarded",
        "spec.devices.requests[0].exactly.selectors[0].cel.expression",
        'has(device.attributes["gpu.example.com"].partition) && ',
    ),
    "typo-in-field.yaml": (
        "error",
        "unknown-field",
        "spec.devices.requests[0].exactly.alocationMode",
        "did you mean `allocationMode`?",
    ),
    "unknown-class.yaml": (
        "warning",
        "unknown-class",
        "spec.devices.requests[0].exactly.deviceClassName",
        "did you mean `gpu`?",
    ),
    "wrong-unit.yaml": (
        "error",
        "invalid",
        "spec.devices.requests[0].exactly.capacity.requests[memory]",
        "`Gi`",
    ),
}


def test_nothing_is_wrong_with_the_small_cluster():
    assert not findings(EXAMPLES / "gpu-cluster", complete=True)


def test_the_small_cluster_shows_the_kinds_one_meets_every_day():
    text = "".join(path.read_text() for path in manifests("gpu-cluster"))
    kinds = [
        "DeviceClass",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
        "Pod",
        "Node",
        "Namespace",
    ]
    assert [kind for kind in kinds if f"\nkind: {kind}\n" not in text] == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_example_breaks_one_rule(name):
    severity, rule, path, words = BROKEN[name]
    (finding,) = [
        f for f in findings(EXAMPLES / "broken" / name) if f.rule != "unknown-class" or rule == f.rule
    ]
    assert (finding.severity, finding.rule, finding.path) == (Severity(severity), rule, path)
    assert words in format_finding(finding)


def test_every_broken_example_has_a_row():
    assert {path.name for path in manifests("broken")} == set(BROKEN)


def test_nothing_is_wrong_with_the_pods_for_a_whole_cluster():
    assert not findings(EXAMPLES / "cluster")


@pytest.fixture
def environment():
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "LC_ALL": "C.UTF-8"}


def _tour(environment):
    return subprocess.run(
        ["/bin/sh", str(EXAMPLES / "tour.sh")],
        cwd=ROOT.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_tour_runs_to_its_end(environment):
    done = _tour(environment)
    assert done.returncode == 0, done.stderr
    assert "nothing to complain about" in done.stdout
    assert "did you mean `allocationMode`?" in done.stdout
    assert "exactly:" in done.stdout
    assert "placed 3 of 3" in done.stdout + done.stderr
    assert "Pod ml/train-0 fits node-a" in done.stdout
    assert "Pod ml/finetune cannot run yet" in done.stdout
    assert "hint: asking for 1 device instead of 2" in done.stdout
    assert any("What to try next" in line for line in done.stdout.splitlines()[-12:])


def test_a_tour_that_fails_reports_the_failure(environment):
    done = _tour({**environment, "DRAY": "false"})
    assert done.returncode == 1
    assert "the tour is broken" in done.stderr
