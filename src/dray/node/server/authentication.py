"""The certificate that an agent shows, signed by itself, and who may ask it.

Theory of operation: nobody has to sign for an agent: the server believes the fingerprint on the node's
object, which only the node can write. Whoever asks shows a certificate of the cluster's authority, and the
server is asked, as the kubelet does, whether that user may reach into this node (`get nodes/proxy`). Answers
are remembered for a while.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dray.client.client import Client
from dray.client.rest_client import CALL_ERRORS
from dray.durable import CorruptFileError, read_regular_file, write_file_atomically
from dray.values.cache_bounds import CacheBound

_DAYS: Final = 365
_RENEW_BEFORE: Final = timedelta(days=30)
_SKEW: Final = timedelta(minutes=5)
_ACCESS_REVIEW_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_YES_SECONDS, _NO_SECONDS = 300.0, 10.0
AUTHORIZATION_BOUND: Final = CacheBound("decisions about log readers", 1_000, "the agent of a node")
_OTHERS_MODE: Final = 0o077
"""A key that others could read is nobody's any more."""


@dataclass(frozen=True, slots=True)
class AgentCertificate:
    """A certificate with its key, in one file, and its fingerprint."""

    file: Path
    fingerprint: str


def load_or_create_certificate(node: str, file: Path, now: datetime) -> AgentCertificate:
    """The certificate of an agent: the one it had, unless that nears its end."""
    kept = _load_certificate(file)
    if kept is None or kept.not_valid_after_utc - _RENEW_BEFORE <= now:
        kept = _create_certificate(node, file, now)
    return AgentCertificate(file, kept.fingerprint(hashes.SHA256()).hex())


def _load_certificate(file: Path) -> x509.Certificate | None:
    try:
        content = read_regular_file(file)
        if content is None or file.lstat().st_mode & _OTHERS_MODE:
            return None
        serialization.load_pem_private_key(content, None)
        return x509.load_pem_x509_certificate(content)
    except (OSError, ValueError, CorruptFileError):
        return None


def _create_certificate(node: str, file: Path, now: datetime) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"[:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_file_atomically(file, private + certificate.public_bytes(serialization.Encoding.PEM))
    return certificate


def build_tls_context(certificate: AgentCertificate, client_ca: bytes) -> ssl.SSLContext:
    """TLS as an agent speaks it; whoever shows a certificate must show one of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate.file)
    if client_ca:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class PeerAuthorizer:
    """Knows who may ask an agent."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._clock = client.options.time_source.clock
        self._decisions: dict[tuple[str, tuple[str, ...]], tuple[bool, float]] = {}

    async def is_allowed(self, certificate: Mapping[str, Any] | None) -> bool | None:
        """Whether somebody may ask; None when they did not show who they are.

        `certificate` is what TLS has checked, as `ssl.SSLSocket.getpeercert` tells it.
        """
        who = _parse_subject(certificate)
        if who is None:
            return None
        now = self._clock.monotonic()
        known = self._decisions.get(who)
        if known is None or known[1] < now:
            allowed = await self._review_access(*who)
            until = now + (_YES_SECONDS if allowed else _NO_SECONDS)
            known = AUTHORIZATION_BOUND.put(self._decisions, who, (allowed, until))
        return known[0]

    async def _review_access(self, user: str, groups: tuple[str, ...]) -> bool:
        spec = {
            "user": user,
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": {
                "verb": "get",
                "resource": "nodes",
                "subresource": "proxy",
                "name": self._node,
            },
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await self._client.post_json(_ACCESS_REVIEW_PATH, review)
        except CALL_ERRORS:
            return False
        return bool((answer.get("status") or {}).get("allowed"))


def _parse_subject(certificate: Mapping[str, Any] | None) -> tuple[str, tuple[str, ...]] | None:
    """User and groups of a certificate; None when it names no single user."""
    names: dict[str, list[str]] = {}
    for part in (certificate or {}).get("subject", ()):
        for field, value in part:
            names.setdefault(field, []).append(value)
    users = names.get("commonName", [])
    return (users[0], tuple(names.get("organizationName", ()))) if len(users) == 1 and users[0] else None
