"""The config map by which kube-scheduler, kube-controller-manager and extension API servers know clients.

Theory of operation: those components serve HTTPS of their own. They read from `kube-system` which CA signs
the certificates of clients, and which CA signs that of a front proxy, whose headers name a user. dray has no
front proxy: the key of that CA is thrown away as soon as it has signed itself, so nobody can pose as one. The
map exists once per store: a server adds what is missing, and its own CA to those of the other servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from dray.x509_certificates import build_authority, encode_certificate_pem, generate_key

AUTHENTICATION_MAP: Final = "extension-apiserver-authentication"
_CLIENT_CA: Final = "client-ca-file"
_FRONT_PROXY: Final = "front-proxy"
_FRONT_PROXY_YEARS: Final = timedelta(days=3650)


def build_authentication_map(ca_pem: str, now: datetime) -> dict[str, Any]:
    """Build the config map; without a CA it has no data."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": AUTHENTICATION_MAP, "namespace": "kube-system"},
        "data": _build_data(ca_pem, now) if ca_pem else {},
    }


def _build_data(ca_pem: str, now: datetime) -> dict[str, str]:
    authority = build_authority(_FRONT_PROXY, generate_key(), now, _FRONT_PROXY_YEARS)
    return {
        _CLIENT_CA: ca_pem,
        "requestheader-client-ca-file": encode_certificate_pem(authority).decode(),
        "requestheader-allowed-names": f'["{_FRONT_PROXY}-client"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-username-headers": '["X-Remote-User"]',
    }


def complete_authentication_data(stored: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the stored data with what it lacks; the CA of clients joins the ones that are stored."""
    complete = {**own, **stored}
    bundle, ca_pem = complete.get(_CLIENT_CA, ""), own.get(_CLIENT_CA, "")
    if ca_pem.strip() not in bundle:
        complete[_CLIENT_CA] = "\n".join(part for part in (bundle.rstrip(), ca_pem) if part)
    return complete
