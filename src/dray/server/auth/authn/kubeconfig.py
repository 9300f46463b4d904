"""Kubeconfig documents: the address of the server and the credentials of a client."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from dray.server.auth.authn.certificates import IssuedCredentials


def build_kubeconfig(
    server_url: str, ca_pem: bytes, credentials: IssuedCredentials, name: str = "dray", user: str = "admin"
) -> dict[str, Any]:
    """Build a kubeconfig that needs no other file."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server_url, "certificate-authority-data": _encode_base64(ca_pem)},
            }
        ],
        "users": [{"name": user, "user": _encode_credentials(credentials)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def _encode_credentials(credentials: IssuedCredentials) -> dict[str, str]:
    if credentials.token:
        return {"token": credentials.token}
    return {
        "client-certificate-data": _encode_base64(credentials.cert_pem),
        "client-key-data": _encode_base64(credentials.key_pem),
    }


def _encode_base64(content: bytes) -> str:
    return b64encode(content).decode()
