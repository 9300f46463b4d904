"""How to reach a server and as whom: the address, what to trust, and credentials that may change.

A `Proof` is what is shown to the server: a token, a certificate, or nothing. Where it comes from is a
`Credentials`: fixed, files that others rotate, or a program (`execplugin`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from dray.client.timing import Tempo
from dray.errors import InputError

REREAD_AFTER: Final = 60.0
"""Seconds after which files are read again; who rotates them keeps the old ones valid longer."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


class AccessError(InputError):
    """A server cannot be reached as configured; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is shown to a server: a bearer token, a certificate with its key (PEM), both, or nothing."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


NO_PROOF: Final = Proof()


class Credentials(Protocol):
    """Where proofs come from."""

    async def proof(self) -> Proof:
        """What to show now."""
        ...

    async def renewed(self, refused: Proof) -> Proof:
        """What to show after the server refused a proof; the same again when there is no other."""
        ...


class Fixed:
    """A proof that never changes."""

    def __init__(self, proof: Proof = NO_PROOF) -> None:
        self._proof = proof

    async def proof(self) -> Proof:
        return self._proof

    async def renewed(self, refused: Proof) -> Proof:
        return self._proof


@dataclass(frozen=True, slots=True)
class ProofFiles:
    """The files a proof is read from; empty names are taken from `otherwise`."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    otherwise: Proof = NO_PROOF


class FromFiles:
    """A proof in files that somebody else keeps fresh."""

    def __init__(self, files: ProofFiles, tempo: Tempo | None = None) -> None:
        self._files = files
        self._clock = (tempo or Tempo()).clock
        self._proof: Proof | None = None
        self._read_at = 0.0

    async def proof(self) -> Proof:
        now = self._clock.monotonic()
        if self._proof is not None and now - self._read_at < REREAD_AFTER:
            return self._proof
        try:
            self._proof = await asyncio.to_thread(self._read)
        except AccessError:
            if self._proof is None:
                raise
        self._read_at = now  # half-written files are read again later; until then the old proof serves
        return self._proof

    async def renewed(self, refused: Proof) -> Proof:
        if self._proof == refused:
            self._read_at = -REREAD_AFTER
        return await self.proof()

    def _read(self) -> Proof:
        files = self._files
        token = read_file(files.token, "token").decode("utf-8", "replace").strip() if files.token else ""
        return Proof(
            token or files.otherwise.token,
            read_file(files.certificate, "client certificate")
            if files.certificate
            else files.otherwise.certificate,
            read_file(files.key, "client key") if files.key else files.otherwise.key,
        )


def read_file(name: str, what: str) -> bytes:
    """A file that must be there and hold something."""
    try:
        content = Path(name).read_bytes()
    except OSError as refused:
        raise AccessError(f"cannot read the {what} in `{name}`: {refused.strerror or refused}") from None
    if not content.strip():
        raise AccessError(f"the {what} in `{name}` is empty")
    return content


@dataclass(frozen=True, slots=True)
class Access:
    """A server, and as whom to ask it.

    Without `ca` the certificates that the machine trusts count. `source` says where all this was configured,
    for messages.
    """

    server: str
    namespace: str = "default"
    ca: bytes = b""
    server_name: str = ""
    insecure: bool = False
    credentials: Credentials = field(default_factory=Fixed)
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    source: str = ""
