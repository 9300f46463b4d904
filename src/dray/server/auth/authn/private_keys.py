"""Private keys: generated, stored in a file, and read back."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dray.server.auth.authn.secret_files import CredentialError, read_private_file, write_private_file

PrivateKey = ec.EllipticCurvePrivateKey


def generate_key() -> PrivateKey:
    """Generate a key on the curve P-256: small, fast, and supported by every client."""
    return ec.generate_private_key(ec.SECP256R1())


def encode_key_pem(key: PrivateKey) -> bytes:
    """Encode a key as PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def read_key(path: Path) -> PrivateKey | None:
    """Read the key in a file; None when the file does not exist."""
    content = read_private_file(path)
    if content is None:
        return None
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
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
