"""Files with the credential of a client: files of their own, or the kubeconfig itself.

Theory of operation: a renewed certificate must be written in one step, with its key, because a process may
end at any moment and others read the files. A kubeconfig with both inside, or one file with both, is
replaced as a whole. Of two files only the certificate is replaced, so it is renewed for the key that it has.
In a kubeconfig the two values are replaced as text: comments and everything else stay. An agent has a file of
its own for what it renews: it hides its kubeconfig from containers by a mount, which ends when the file is
replaced.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray.client.config.client_config import (
    NO_CREDENTIAL,
    ClientConfigError,
    ClientCredential,
    CredentialSource,
    has_matching_key,
    read_nonempty_file,
)
from dray.durable import CorruptFileError, read_regular_file, write_file_atomically


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The files a credential is read from; empty names are taken from `fallback`."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    fallback: ClientCredential = NO_CREDENTIAL

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files with secrets."""
        return tuple(filter(None, (self.token, self.key)))

    @property
    def keeps_key(self) -> bool:
        return self.certificate != self.key

    def read(self) -> ClientCredential:
        """Read the credential."""
        token = (
            read_nonempty_file(self.token, "token").decode("utf-8", "replace").strip() if self.token else ""
        )
        return ClientCredential(
            token or self.fallback.token,
            read_nonempty_file(self.certificate, "client certificate")
            if self.certificate
            else self.fallback.certificate,
            read_nonempty_file(self.key, "client key") if self.key else self.fallback.key,
        )

    def write(self, old: ClientCredential, new: ClientCredential) -> None:
        """Replace the certificate, with the key when both are one file."""
        if not self.certificate or (self.keeps_key and new.key != old.key):
            raise ClientConfigError("the certificate is not in a file that can be replaced")
        content = new.certificate if self.keeps_key else new.key.rstrip() + b"\n" + new.certificate
        _replace_file(Path(self.certificate), content)


@dataclass(frozen=True, slots=True)
class InlineCredential:
    """A client certificate and its key inside of a kubeconfig."""

    file: Path
    parse: Callable[[], ClientCredential]
    """Reads the file again."""

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files with secrets."""
        return (str(self.file),)

    @property
    def keeps_key(self) -> bool:
        return False

    def read(self) -> ClientCredential:
        """Read the credential."""
        return self.parse()

    def write(self, old: ClientCredential, new: ClientCredential) -> None:
        """Replace certificate and key."""
        content = read_nonempty_file(str(self.file), "kubeconfig")
        for before, after in ((old.certificate, new.certificate), (old.key, new.key)):
            coded = base64.b64encode(before)
            if content.count(coded) != 1:
                raise ClientConfigError(
                    f"`{self.file}` does not have the certificate and its key exactly once, in one line each"
                )
            content = content.replace(coded, base64.b64encode(after))
        _replace_file(self.file, content)


@dataclass(frozen=True, slots=True)
class RenewedCredential:
    """A credential that is renewed in a file of its own, and otherwise comes from where it was given."""

    file: Path
    given: CredentialSource

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files with secrets."""
        return (str(self.file), *self.given.secret_files)

    @property
    def keeps_key(self) -> bool:
        return False

    def read(self) -> ClientCredential:
        """Read the renewed credential, or the given one when that is of another user or is valid longer."""
        try:
            content = read_regular_file(self.file) or b""
        except (OSError, CorruptFileError):
            content = b""
        renewed, given = ClientCredential("", content, content), self.given.read()
        return (
            renewed
            if _is_later_certificate(content, given.certificate) and has_matching_key(renewed)
            else given
        )

    def write(self, old: ClientCredential, new: ClientCredential) -> None:
        """Replace certificate and key."""
        _replace_file(self.file, new.key.rstrip() + b"\n" + new.certificate)


def _is_later_certificate(renewed: bytes, given: bytes) -> bool:
    """Whether a certificate is a later one of the same authority for the same user."""
    if not given or not renewed:
        return False
    from dray.x509_certificates import parse_certificates, read_authority_key

    old, new = parse_certificates(given)[:1], parse_certificates(renewed)[:1]
    return bool(old and new) and (
        new[0].subject == old[0].subject
        and read_authority_key(new[0]) == read_authority_key(old[0])
        and new[0].not_valid_after_utc > old[0].not_valid_after_utc
    )


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file, not a link to one: others may have set that up to point elsewhere."""
    if path.is_symlink():
        raise ClientConfigError(f"`{path}` is a link; whoever made it has to renew what it points to")
    try:
        write_file_atomically(path, content)
    except OSError as refused:
        raise ClientConfigError(f"`{path}` cannot be replaced: {refused.strerror or refused}") from None
