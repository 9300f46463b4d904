"""Credentials that change: files and programs."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

import pytest

from dray.client.config.client_config import (
    ClientConfigError,
    ClientCredential,
    FileCredentialProvider,
)
from dray.client.config.credential_files import CredentialFiles
from dray.client.config.exec_plugin import ExecCredentialProvider, ExecPlugin
from dray.clock import format_timestamp
from tests.unit.client.fakeapi import InstantTime

V1 = "client.authentication.k8s.io/v1"


async def test_a_token_file_is_read_again_after_a_minute(tmp_path):
    file, hours = tmp_path / "token", InstantTime()
    file.write_text("one")
    credentials = FileCredentialProvider(CredentialFiles(token=str(file)), hours.time_source)
    assert await credentials.get_credential() == ClientCredential("one")
    file.write_text("two")
    assert await credentials.get_credential() == ClientCredential("one")
    hours.clock.advance(61)
    assert await credentials.get_credential() == ClientCredential("two")


async def test_a_token_that_was_refused_is_read_again_at_once(tmp_path):
    file, hours = tmp_path / "token", InstantTime()
    file.write_text("one")
    credentials = FileCredentialProvider(CredentialFiles(token=str(file)), hours.time_source)
    old = await credentials.get_credential()
    file.write_text("two")
    assert await credentials.renew_credential(old) == ClientCredential("two")
    assert await credentials.renew_credential(old) == ClientCredential("two")


async def test_the_old_token_serves_while_the_file_is_away(tmp_path):
    file, hours = tmp_path / "token", InstantTime()
    with pytest.raises(ClientConfigError, match=r"cannot read the token in `.*token`"):
        await FileCredentialProvider(CredentialFiles(token=str(file)), hours.time_source).get_credential()
    file.write_text("one")
    credentials = FileCredentialProvider(CredentialFiles(token=str(file)), hours.time_source)
    await credentials.get_credential()
    file.write_text(" \n")
    hours.clock.advance(61)
    assert await credentials.get_credential() == ClientCredential("one")


@pytest.fixture
def login(tmp_path):
    """A credentials program that prints what is in a file and counts how often it ran."""
    script = tmp_path / "login.py"
    script.write_text(
        "import os, pathlib, sys\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "with (here / 'runs').open('a') as runs: runs.write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        "(here / 'env').write_text(os.environ.get('EXTRA', ''))\n"
        "sys.stderr.write('login: no luck') if '--fail' in sys.argv else None\n"
        "sys.exit(3) if '--fail' in sys.argv else print((here / 'print').read_text())\n"
    )

    class Login:
        def program(self, *arguments, **more):
            return ExecPlugin(sys.executable, (str(script), *arguments), **more)

        def prints(self, status, version=V1):
            document = {"apiVersion": version, "kind": "ExecCredential", "status": status}
            (tmp_path / "print").write_text(json.dumps(document) if isinstance(status, dict) else status)

        @property
        def runs(self):
            file = tmp_path / "runs"
            return [json.loads(run) for run in file.read_text().splitlines()] if file.exists() else []

        @property
        def extra(self):
            return (tmp_path / "env").read_text()

    return Login()


async def test_a_program_runs_once_for_many_requests_and_gets_the_cluster_information(login):
    login.prints({"token": "t1"})
    program = login.program(environment={"EXTRA": "x"}, cluster={"server": "https://s"})
    credentials = ExecCredentialProvider(program, InstantTime().time_source)
    proofs = await asyncio.gather(*(credentials.get_credential() for _ in range(5)))
    assert proofs == [ClientCredential("t1")] * 5
    assert login.extra == "x"
    assert login.runs == [
        {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://s"}},
        }
    ]


async def test_an_expired_proof_is_asked_for_again(login):
    hours = InstantTime()
    expires = format_timestamp(hours.clock.now() + timedelta(minutes=5))
    login.prints({"token": "t1", "expirationTimestamp": expires})
    credentials = ExecCredentialProvider(login.program(), hours.time_source)
    await credentials.get_credential()
    hours.clock.advance(280)
    await credentials.get_credential()
    assert len(login.runs) == 1
    hours.clock.advance(15)
    login.prints({"token": "t2"})
    assert await credentials.get_credential() == ClientCredential("t2")
    assert len(login.runs) == 2


async def test_a_refused_proof_is_asked_for_again_once_for_all(login):
    login.prints({"token": "t1", "clientCertificateData": "C", "clientKeyData": "K"})
    credentials = ExecCredentialProvider(login.program(), InstantTime().time_source)
    old = await credentials.get_credential()
    assert old == ClientCredential("t1", b"C", b"K")
    login.prints({"token": "t2"})
    assert (
        await asyncio.gather(*(credentials.renew_credential(old) for _ in range(3)))
        == [ClientCredential("t2")] * 3
    )
    assert len(login.runs) == 2


USELESS = [
    ("nothing of use", "no ExecCredential with `status`"),
    ({}, "neither a token nor a certificate"),
    ({"clientKeyData": "K", "token": "t"}, "only one of"),
    ({"token": "t", "expirationTimestamp": "tomorrow"}, "`expirationTimestamp` `tomorrow`"),
    ({"token": "t", "expirationTimestamp": "2026-01-01T00:00:00"}, "`expirationTimestamp`"),
]


@pytest.mark.parametrize(("status", "message"), USELESS)
async def test_invalid_output_is_reported(login, status, message):
    login.prints(status)
    with pytest.raises(ClientConfigError, match=message):
        await ExecCredentialProvider(login.program()).get_credential()


async def test_a_program_of_another_version_is_refused(login):
    login.prints({"token": "t"}, "client.authentication.k8s.io/v1beta1")
    with pytest.raises(ClientConfigError, match="v1beta1`, expected `client"):
        await ExecCredentialProvider(login.program()).get_credential()


async def test_a_program_that_fails_is_quoted(login):
    login.prints({})
    with pytest.raises(ClientConfigError, match="failed with code 3: login: no luck"):
        await ExecCredentialProvider(login.program("--fail")).get_credential()


async def test_a_program_that_is_not_there_comes_with_its_hint():
    program = ExecPlugin("no-such-login", install_hint="install it with care")
    with pytest.raises(ClientConfigError, match=r"`no-such-login`: No such file.*; install it with care"):
        await ExecCredentialProvider(program).get_credential()


async def test_a_program_without_end_is_ended(monkeypatch):
    monkeypatch.setattr("dray.client.config.exec_plugin.RUN_TIMEOUT_SECONDS", 0.2)
    program = ExecPlugin(sys.executable, ("-c", "import time; time.sleep(60)"))
    with pytest.raises(ClientConfigError, match=r"did not end in 0\.2 seconds"):
        await ExecCredentialProvider(program).get_credential()
