"""`dray doctor certificates`: what expires when, who renews it, and what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dray.cli.app import run
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.cluster.services.certificate_renewal import ServerCertificateRenewal
from dray.manifests.writer import to_yaml_block
from dray.node.server.certificate import load_or_create_certificate
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig
from dray.telemetry.logs import build_silent_logger

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _no_other_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def build_directory(directory: Path, *, days_ago: int = 0) -> CertificateAuthority:
    """The data directory of a server that started some days ago."""
    clock = ManualClock(NOW - timedelta(days=days_ago))
    authority = CertificateAuthority.open(directory / "keys", (), clock)
    where = (directory / "admin.kubeconfig", "https://127.0.0.1:1")
    ServerCertificateRenewal(authority, where, TimeSource(clock), build_silent_logger()).write_kubeconfig()
    node = directory / "nodes" / "node-0"
    node.mkdir(parents=True)
    load_or_create_certificate("node-0", node / "serving.pem", clock.now())
    return authority


def read_states(data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    code = run(["doctor", "certificates", "--data-dir", str(data), "-o", "json"])
    (report,) = [json.loads(capsys.readouterr().out)]
    return code, {each["name"]: each["state"] for each in report["certificates"]}


@pytest.mark.parametrize(
    ("days_ago", "code", "authority", "others"),
    [
        (1, 0, "ok", "ok"),
        (250, 1, "ok", "not renewed"),
        (400, 1, "ok", "expired"),
        (3500, 1, "expires soon", "expired"),
        (-2, 1, "not valid yet", "not valid yet"),
    ],
)
def test_every_certificate_of_a_server_is_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    days_ago: int,
    code: int,
    authority: str,
    others: str,
):
    build_directory(tmp_path / "data", days_ago=days_ago)
    assert read_states(tmp_path / "data", capsys) == (
        code,
        {
            "authority of the server": authority,
            "serving certificate of the server": others,
            "administrator's kubeconfig": others,
            "serving certificate of the agent": others,
        },
    )


def test_the_text_says_who_renews_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    build_directory(tmp_path / "dray-data", days_ago=400)
    assert run(["doctor", "certificates"]) == 1
    first, serving, hint, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("ok: authority of the server: expires ")
    assert first.endswith("; renewed by nobody (`dray-data/keys/ca.crt`)")
    assert serving.startswith("expired: serving certificate of the server: expired ")
    assert serving.endswith(
        "days ago; renewed by the server, when it starts and while it runs (`dray-data/keys/serving.pem`)"
    )
    assert hint.startswith("hint: start the server")


@pytest.mark.parametrize(
    ("user", "groups", "days", "says"),
    [
        ("jane", ("team",), 30, "ok: client certificate of `jane`"),
        ("jane", ("team",), 10, "expires soon: client certificate of `jane`"),
        ("system:node:n1", ("system:nodes",), 10, "ok: client certificate of `system:node:n1`"),
    ],
)
def test_the_certificate_of_a_kubeconfig(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    user: str,
    groups: tuple[str, ...],
    days: int,
    says: str,
):
    authority = build_directory(tmp_path / "data")
    issued = authority.issue_client_certificate(user, groups, days)
    document = build_kubeconfig("http://127.0.0.1:1", authority.ca_pem, issued)
    (tmp_path / "config").write_text(to_yaml_block(document))
    code = run(["doctor", "certificates", "--kubeconfig", str(tmp_path / "config")])
    assert capsys.readouterr().out.startswith(says)
    assert code == int(not says.startswith("ok"))


def test_a_directory_without_keys_and_a_server_that_is_away_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(["doctor", "certificates", "--data-dir", str(tmp_path)]) == 2
    assert "there are no keys in" in capsys.readouterr().err
    build_directory(tmp_path / "data")
    config = tmp_path / "data" / "admin.kubeconfig"
    assert run(["doctor", "certificates", "--kubeconfig", str(config)]) == 2
    assert "https://127.0.0.1:1 cannot be reached" in capsys.readouterr().err
