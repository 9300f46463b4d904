"""Credentials that change: files and programs."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

import pytest

from dray.client.config.client_config import AccessError, FromFiles, Proof, ProofFiles
from dray.client.config.exec_plugin import FromProgram, Program
from dray.clock import timestamp
from tests.unit.client.fakeapi import Hours

V1 = "client.authentication.k8s.io/v1"


async def test_a_token_file_is_read_again_after_a_minute(tmp_path):
    file, hours = tmp_path / "token", Hours()
    file.write_text("one")
    credentials = FromFiles(ProofFiles(token=str(file)), hours.tempo)
    assert await credentials.proof() == Proof("one")
    file.write_text("two")
    assert await credentials.proof() == Proof("one")
    hours.clock.advance(61)
    assert await credentials.proof() == Proof("two")


async def test_a_token_that_was_refused_is_read_again_at_once(tmp_path):
    file, hours = tmp_path / "token", Hours()
    file.write_text("one")
    credentials = FromFiles(ProofFiles(token=str(file)), hours.tempo)
    old = await credentials.proof()
    file.write_text("two")
    assert await credentials.renewed(old) == Proof("two")
    assert await credentials.renewed(old) == Proof("two")


async def test_the_old_token_serves_while_the_file_is_away(tmp_path):
    file, hours = tmp_path / "token", Hours()
    with pytest.raises(AccessError, match=r"cannot read the token in `.*token`"):
        await FromFiles(ProofFiles(token=str(file)), hours.tempo).proof()
    file.write_text("one")
    credentials = FromFiles(ProofFiles(token=str(file)), hours.tempo)
    await credentials.proof()
    file.write_text(" \n")
    hours.clock.advance(61)
    assert await credentials.proof() == Proof("one")


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
            return Program(sys.executable, (str(script), *arguments), **more)

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


async def test_a_program_runs_once_for_many_and_is_told_what_it_may_know(login):
    login.prints({"token": "t1"})
    program = login.program(environment={"EXTRA": "x"}, cluster={"server": "https://s"})
    credentials = FromProgram(program, Hours().tempo)
    proofs = await asyncio.gather(*(credentials.proof() for _ in range(5)))
    assert proofs == [Proof("t1")] * 5
    assert login.extra == "x"
    assert login.runs == [
        {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://s"}},
        }
    ]


async def test_an_expired_proof_is_asked_for_again(login):
    hours = Hours()
    expires = timestamp(hours.clock.now() + timedelta(minutes=5))
    login.prints({"token": "t1", "expirationTimestamp": expires})
    credentials = FromProgram(login.program(), hours.tempo)
    await credentials.proof()
    hours.clock.advance(280)
    await credentials.proof()
    assert len(login.runs) == 1
    hours.clock.advance(15)
    login.prints({"token": "t2"})
    assert await credentials.proof() == Proof("t2")
    assert len(login.runs) == 2


async def test_a_refused_proof_is_asked_for_again_once_for_all(login):
    login.prints({"token": "t1", "clientCertificateData": "C", "clientKeyData": "K"})
    credentials = FromProgram(login.program(), Hours().tempo)
    old = await credentials.proof()
    assert old == Proof("t1", b"C", b"K")
    login.prints({"token": "t2"})
    assert await asyncio.gather(*(credentials.renewed(old) for _ in range(3))) == [Proof("t2")] * 3
    assert len(login.runs) == 2


USELESS = [
    ("nothing of use", "no ExecCredential with `status`"),
    ({}, "neither a token nor a certificate"),
    ({"clientKeyData": "K", "token": "t"}, "only one of"),
    ({"token": "t", "expirationTimestamp": "tomorrow"}, "`expirationTimestamp` `tomorrow`"),
    ({"token": "t", "expirationTimestamp": "2026-01-01T00:00:00"}, "`expirationTimestamp`"),
]


@pytest.mark.parametrize(("status", "message"), USELESS)
async def test_useless_output_is_told(login, status, message):
    login.prints(status)
    with pytest.raises(AccessError, match=message):
        await FromProgram(login.program()).proof()


async def test_a_program_of_another_version_is_told(login):
    login.prints({"token": "t"}, "client.authentication.k8s.io/v1beta1")
    with pytest.raises(AccessError, match="v1beta1`, expected `client"):
        await FromProgram(login.program()).proof()


async def test_a_program_that_fails_is_quoted(login):
    login.prints({})
    with pytest.raises(AccessError, match="failed with code 3: login: no luck"):
        await FromProgram(login.program("--fail")).proof()


async def test_a_program_that_is_not_there_comes_with_its_hint():
    program = Program("no-such-login", install_hint="install it with care")
    with pytest.raises(AccessError, match=r"`no-such-login`: No such file.*; install it with care"):
        await FromProgram(program).proof()


async def test_a_program_without_end_is_ended(monkeypatch):
    monkeypatch.setattr("dray.client.config.exec_plugin.LONGEST_RUN", 0.2)
    program = Program(sys.executable, ("-c", "import time; time.sleep(60)"))
    with pytest.raises(AccessError, match=r"did not end in 0\.2 seconds"):
        await FromProgram(program).proof()
