"""The file that tells a client where the server is and who the client is."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from dray.server.auth.authn.certificates import Credentials


def kubeconfig(
    server_url: str, ca_pem: bytes, credentials: Credentials, name: str = "dray", user: str = "admin"
) -> dict[str, Any]:
    """A kubeconfig document that needs no other file."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server_url, "certificate-authority-data": _text(ca_pem)}}
        ],
        "users": [{"name": user, "user": _shown(credentials)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def _shown(credentials: Credentials) -> dict[str, str]:
    if credentials.token:
        return {"token": credentials.token}
    return {
        "client-certificate-data": _text(credentials.cert_pem),
        "client-key-data": _text(credentials.key_pem),
    }


def _text(content: bytes) -> str:
    return b64encode(content).decode()
