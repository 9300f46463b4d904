"""`dray doctor node`: its text, its JSON, its exit code, and its watch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from dray.cli.app import run


@pytest.fixture
def kubelet_dir(tmp_path: Path) -> Path:
    (tmp_path / "plugins_registry").mkdir()
    return tmp_path


def test_a_node_in_order(kubelet_dir: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "node", "--kubelet-dir", str(kubelet_dir), "--cdi-dir", str(kubelet_dir)]) == 0
    assert capsys.readouterr().out == ("no driver; no checkpoint, 0 CDI devices: nothing to complain about\n")


def test_a_finding_comes_with_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "node", "--kubelet-dir", str(tmp_path)]) == 1
    said, hint, summary = capsys.readouterr().out.splitlines()
    assert said == f"error: `{tmp_path}/plugins_registry` cannot be read: No such file or directory"
    assert hint.startswith("hint: run as root")
    assert summary.endswith(": 1 finding")


def test_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "node", "--kubelet-dir", str(tmp_path), "-o", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["severity"]) for each in report["findings"]] == [("directories", "error")]


def test_metrics_need_a_watch(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "node", "--kubelet-dir", str(tmp_path), "--metrics-address", ":0"]) == 2
    assert "needs `--watch`" in capsys.readouterr().err


def test_a_watch_prints_what_changes_and_serves_metrics(kubelet_dir: Path):
    registry = kubelet_dir / "plugins_registry"
    registry.rmdir()
    places = ["--kubelet-dir", str(kubelet_dir), "--cdi-dir", str(kubelet_dir)]
    options = ["--watch", "--interval", "50ms", "--metrics-address", "127.0.0.1:0"]
    started = subprocess.Popen(
        [sys.executable, "-m", "dray", "doctor", "node", *places, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert started.stderr is not None
        address = started.stderr.readline().split()[-1]
        assert started.stdout.readline().startswith("error: ")
        assert started.stdout.readline().startswith("hint: ")
        assert started.stdout.readline().endswith(": 1 finding\n")
        assert urllib.request.urlopen(address.replace("/metrics", "/readyz"), timeout=30).read() == b"ok"
        registry.mkdir()
        assert started.stdout.readline().startswith("resolved: ")
        metrics = urllib.request.urlopen(address, timeout=30).read().decode()
        assert 'dray_doctor_node_findings{check="directories",severity="error"} 0.0' in metrics
    finally:
        started.send_signal(signal.SIGTERM)
        _, errors = started.communicate(timeout=30)
    assert (started.returncode, errors) == (0, "stopped\n")
