"""The configuration of a client: the server address, TLS trust, and a credential provider.

A `ClientCredential` is what a request presents to the server: a token, a certificate, or nothing. A
`CredentialProvider` supplies it: a static value, files that are renewed (`credential_files`), or a program
(`exec_plugin`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from dray.client.timing import TimeSource
from dray.errors import InputError
from dray.private_files import open_memory_file

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


class CredentialSource(Protocol):
    """Files that have a credential."""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files with secrets."""
        ...

    @property
    def keeps_key(self) -> bool:
        """Whether certificate and key are two files, so that only the certificate can be replaced."""
        ...

    def read(self) -> ClientCredential:
        """Read the credential; raises `ClientConfigError`."""
        ...

    def write(self, old: ClientCredential, new: ClientCredential) -> None:
        """Replace the certificate, and its key, in one step; raises `ClientConfigError`."""
        ...


class FileCredentialProvider:
    """A credential in files that this or another program renews."""

    def __init__(self, source: CredentialSource, time_source: TimeSource | None = None) -> None:
        self.source = source
        self._clock = (time_source or TimeSource()).clock
        self._credential: ClientCredential | None = None
        self._read_at = 0.0
        self._unwritten: tuple[ClientCredential, ClientCredential] | None = None
        """What is in the files, and what takes its place, because it could not be written there."""

    async def get_credential(self) -> ClientCredential:
        now = self._clock.monotonic()
        if self._credential is not None and now - self._read_at < REREAD_SECONDS:
            return self._credential
        try:
            self._credential = await asyncio.to_thread(self._read_credential, self._credential)
        except ClientConfigError:
            if self._credential is None:
                raise
        self._read_at = now  # half-written files are read again later; until then the old credential serves
        return self._credential

    async def renew_credential(self, refused: ClientCredential) -> ClientCredential:
        if self._credential == refused:
            self._read_at = -REREAD_SECONDS
        return await self.get_credential()

    async def replace_credential(self, old: ClientCredential, new: ClientCredential) -> None:
        """Use a new certificate from now on and write it into the files.

        Raises `ClientConfigError` when it cannot be written; this process uses it nevertheless.
        """
        self._credential = new
        try:
            await asyncio.to_thread(self.source.write, old, new)
        except ClientConfigError:
            self._unwritten = (old, new)
            raise

    def _read_credential(self, known: ClientCredential | None) -> ClientCredential:
        found = self.source.read()
        if self._unwritten is not None:
            if found == self._unwritten[0]:
                return self._unwritten[1]
            self._unwritten = None
        if known is not None and found != known and not has_matching_key(found):
            raise ClientConfigError("the files have a certificate and the key of another one")
        return found


def has_matching_key(credential: ClientCredential) -> bool:
    """Whether certificate and key belong together; also when there are none."""
    if not credential.certificate:
        return True
    with open_memory_file(credential.certificate.rstrip() + b"\n" + credential.key) as file:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(file, password="")
        except (ssl.SSLError, OSError):
            return False
    return True


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
