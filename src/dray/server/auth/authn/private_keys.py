"""Private keys: stored in a file, and read back."""

from __future__ import annotations

from pathlib import Path

from dray.server.auth.authn.secret_files import CredentialError, read_private_file, write_private_file
from dray.x509_certificates import PrivateKey, encode_key_pem, generate_key, parse_key_pem


def read_key(path: Path) -> PrivateKey | None:
    """Read the key in a file; None when the file does not exist."""
    content = read_private_file(path)
    if content is None:
        return None
    key = parse_key_pem(content)
    if key is None:
        raise CredentialError(
            f"`{path}` is no key as we write it (PEM, P-256, no password); delete it to get a new one"
        )
    return key


def load_or_create_key(path: Path) -> PrivateKey:
    """Read the key in a file, which is created if it does not exist."""
    key = read_key(path)
    if key is None:
        key = generate_key()
        write_private_file(path, encode_key_pem(key))
    return key
