"""Credentials from a program, as `client.authentication.k8s.io` describes.

Theory of operation: the program is started when there is no proof, when the last one has expired, and when
the server refused it; it prints an `ExecCredential`. However many requests wait, it runs once. It never gets
a terminal: a server process has nobody to ask.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from dray.api.json_text import read_json, write_json
from dray.client.config.client_config import AccessError, Proof
from dray.client.timing import Tempo
from dray.errors import DecodeError

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

LONGEST_RUN: Final = 60.0
EARLY: Final = timedelta(seconds=10)
"""A proof that expires while a request is under way is of no use."""

SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Program:
    """Which program to start, and with what. `cluster` is told to it when it wants to know."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = VERSIONS[0]
    cluster: Mapping[str, Any] | None = None
    install_hint: str = ""


class FromProgram:
    """A proof that a program prints."""

    def __init__(self, program: Program, tempo: Tempo | None = None) -> None:
        self._program = program
        self._clock = (tempo or Tempo()).clock
        self._proof: Proof | None = None
        self._expires: datetime | None = None
        self._one_at_a_time = asyncio.Lock()

    async def proof(self) -> Proof:
        async with self._one_at_a_time:
            if self._proof is None or self._expired():
                await self._run()
            assert self._proof is not None
            return self._proof

    async def renewed(self, refused: Proof) -> Proof:
        async with self._one_at_a_time:
            if self._proof is None or self._proof == refused:
                await self._run()
            assert self._proof is not None
            return self._proof

    def _expired(self) -> bool:
        return self._expires is not None and self._clock.now() + EARLY >= self._expires

    async def _run(self) -> None:
        printed = await _output_of(self._program)
        self._proof, self._expires = _read(self._program, printed)


async def _output_of(program: Program) -> bytes:
    spec: dict[str, Any] = {"interactive": False}
    if program.cluster is not None:
        spec["cluster"] = program.cluster
    told = {"apiVersion": program.version, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **program.environment,
        "KUBERNETES_EXEC_INFO": write_json(told).decode(),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            program.command,
            *program.arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as refused:
        hint = f"; {program.install_hint}" if program.install_hint else ""
        raise AccessError(
            f"cannot start the credentials program `{program.command}`: {refused.strerror}{hint}"
        ) from None
    return await _finished(program, process)


async def _finished(program: Program, process: asyncio.subprocess.Process) -> bytes:
    try:
        async with asyncio.timeout(LONGEST_RUN):
            printed, complaint = await process.communicate()
    except TimeoutError:
        raise AccessError(
            f"the credentials program `{program.command}` did not end in {LONGEST_RUN:g} seconds"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = complaint[-SHOWN:].decode("utf-8", "replace").strip()
        raise AccessError(
            f"the credentials program `{program.command}` failed with code {process.returncode}"
            + (f": {said}" if said else "")
        )
    return printed


def _read(program: Program, printed: bytes) -> tuple[Proof, datetime | None]:
    try:
        document = read_json(printed)
        status = document["status"]
        version = document["apiVersion"]
    except (DecodeError, KeyError, TypeError):
        raise _useless(program, "no ExecCredential with `status`") from None
    if version != program.version:
        raise _useless(program, f"an ExecCredential of `{version}`, expected `{program.version}`")
    proof = Proof(
        _text(status, "token"),
        _text(status, "clientCertificateData").encode(),
        _text(status, "clientKeyData").encode(),
    )
    if bool(proof.certificate) != bool(proof.key):
        raise _useless(program, "only one of `clientCertificateData` and `clientKeyData`")
    if not proof.token and not proof.certificate:
        raise _useless(program, "neither a token nor a certificate")
    return proof, _expiry(program, status)


def _text(status: Mapping[str, Any], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _expiry(program: Program, status: Mapping[str, Any]) -> datetime | None:
    told = _text(status, "expirationTimestamp")
    if not told:
        return None
    try:
        moment = datetime.fromisoformat(told)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _useless(
            program, f"`expirationTimestamp` `{told}`, expected for example `2026-01-31T12:00:00Z`"
        )
    return moment


def _useless(program: Program, what: str) -> AccessError:
    return AccessError(f"the credentials program `{program.command}` printed {what}")
