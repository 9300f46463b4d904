"""The configuration of a client: the server address, TLS trust, and a credential provider.

A `ClientCredential` is what a request presents to the server: a token, a certificate, or nothing. A
`CredentialProvider` supplies it: a static value, files that others rotate, or a program (`exec_plugin`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from dray.client.timing import TimeSource
from dray.errors import InputError

REREAD_SECONDS: Final = 60.0
"""Seconds after which files are read again; rotated credentials stay valid longer than that."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class ClientConfigError(InputError):
    """A server cannot be reached as configured; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class ClientCredential:
    """A bearer token, a client certificate with its key (PEM), both, or nothing."""

    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


NO_CREDENTIAL: Final = ClientCredential()


class CredentialProvider(Protocol):
    """Supplies credentials."""

    async def get_credential(self) -> ClientCredential:
        """Return the current credential."""
        ...

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        """Return a credential after the server refused one; the same again when there is no other."""
        ...


class StaticCredentialProvider:
    """A credential that never changes."""

    def __init__(self, credential: ClientCredential = NO_CREDENTIAL) -> None:
        self._credential = credential

    async def get_credential(self) -> ClientCredential:
        return self._credential

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        return self._credential


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The files a credential is read from; empty names are taken from `fallback`."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    fallback: ClientCredential = NO_CREDENTIAL


class FileCredentialProvider:
    """A credential in files that another program rotates."""

    def __init__(self, files: CredentialFiles, time_source: TimeSource | None = None) -> None:
        self._files = files
        self._clock = (time_source or TimeSource()).clock
        self._credential: ClientCredential | None = None
        self._read_at = 0.0

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files with secrets."""
        return tuple(filter(None, (self._files.token, self._files.key)))

    async def get_credential(self) -> ClientCredential:
        now = self._clock.monotonic()
        if self._credential is not None and now - self._read_at < REREAD_SECONDS:
            return self._credential
        try:
            self._credential = await asyncio.to_thread(self._read_credential)
        except ClientConfigError:
            if self._credential is None:
                raise
        self._read_at = now  # half-written files are read again later; until then the old credential serves
        return self._credential

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        if self._credential == refused:
            self._read_at = -REREAD_SECONDS
        return await self.get_credential()

    def _read_credential(self) -> ClientCredential:
        files = self._files
        token = (
            read_nonempty_file(files.token, "token").decode("utf-8", "replace").strip() if files.token else ""
        )
        return ClientCredential(
            token or files.fallback.token,
            read_nonempty_file(files.certificate, "client certificate")
            if files.certificate
            else files.fallback.certificate,
            read_nonempty_file(files.key, "client key") if files.key else files.fallback.key,
        )


def read_nonempty_file(name: str, what: str) -> bytes:
    """Read a file that must exist and have content."""
    try:
        content = Path(name).read_bytes()
    except OSError as refused:
        raise ClientConfigError(
            f"cannot read the {what} in `{name}`: {refused.strerror or refused}"
        ) from None
    if not content.strip():
        raise ClientConfigError(f"the {what} in `{name}` is empty")
    return content


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """A server, and the credentials for it.

    Without `ca` the certificates that the machine trusts count. `source` says where all this was configured,
    for messages.
    """

    server: str
    namespace: str = "default"
    ca: bytes = b""
    server_name: str = ""
    insecure: bool = False
    credential_provider: CredentialProvider = field(default_factory=StaticCredentialProvider)
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)
    source: str = ""
    context: str = ""
    """The context of the kubeconfig; empty where there is none."""
