"""A report about certificates: which expire when, who renews them, and what to do when that did not happen.

A certificate that is renewed is overdue when it is still there a day, or a twentieth of its lifetime, after
its renewal time. The authority of a server, and certificates of people, are renewed by nobody; they are
reported long before they end.

Rules for this file: nothing is changed, and no key is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from dray.clock import format_timestamp
from dray.cluster.services.api_server import KEYS_DIRECTORY, KUBECONFIG_FILE
from dray.cluster.services.certificate_renewal import (
    ADMIN_USER,
    AUTHORITY_WARNING,
    read_kubeconfig_certificate,
)
from dray.errors import InputError
from dray.node.agent import SERVING_FILE
from dray.x509_certificates import compute_renewal_time, is_valid_at, parse_certificates, read_subject

CLIENT_FILE: Final = "client.pem"
"""The renewed client certificate of an agent and its key, in its root."""
_PERSON_WARNING: Final = timedelta(days=14)
_COMPONENT_GROUPS: Final = frozenset({"system:nodes", "dray:drivers", "dray:classic-drivers"})
_COMPONENT_USERS: Final = frozenset({"dray:scheduler", "dray:controller"})
_BY_HAND: Final = "nobody"
_BY_SERVER: Final = "the server, when it starts and while it runs"
_BY_AGENT: Final = "the agent, when it starts and while it runs"
_BY_PROCESS: Final = "the process that uses it, while it runs"
_BY_ISSUER: Final = "whoever issued it"

_HINTS: Final = {
    _BY_SERVER: "start the server, or look for `a certificate cannot be renewed` in its log",
    _BY_AGENT: "start the agent, or look for `cannot be renewed` in its log",
    _BY_PROCESS: "get a new kubeconfig by `dray server credentials`; the log of the process has the reason",
}
_ISSUER_HINT: Final = "get a new kubeconfig by `dray server credentials`"
_AUTHORITY_HINT: Final = "replace the authority: docs/guides/run-a-server.md#certificates"


class CertificateState(Enum):
    """How it is with a certificate."""

    OK = "ok"
    NOT_YET = "not valid yet"
    SOON = "expires soon"
    OVERDUE = "not renewed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """What there is to say about one certificate."""

    name: str
    where: str
    expires: datetime
    state: CertificateState
    renewed_by: str
    hint: str

    def to_document(self) -> dict[str, Any]:
        """Convert to JSON."""
        return {
            "name": self.name,
            "where": self.where,
            "expires": format_timestamp(self.expires),
            "state": self.state.value,
            "renewedBy": self.renewed_by,
            **({"hint": self.hint} if self.hint else {}),
        }


def report_server_directory(directory: Path, keys: Path | None, now: datetime) -> Iterator[CertificateReport]:
    """Report the certificates in the data directory of a server, and of nodes that `dray up` has there."""
    keys = keys or directory / KEYS_DIRECTORY
    if not keys.is_dir():
        raise InputError(f"there are no keys in `{keys}`; name the directory of a server with --data-dir")
    authority = _read_certificate(keys / "ca.crt")
    if authority is not None:
        yield _report("authority of the server", keys / "ca.crt", authority, now, _BY_HAND)
    serving = _read_certificate(keys / "serving.pem")
    if serving is not None:
        yield _report("serving certificate of the server", keys / "serving.pem", serving, now, _BY_SERVER)
    admin = read_kubeconfig_certificate(directory / KUBECONFIG_FILE)
    if admin is not None:
        yield _report("administrator's kubeconfig", directory / KUBECONFIG_FILE, admin, now, _BY_SERVER)
    for root in sorted((directory / "nodes").glob("*/")):
        yield from report_node_directory(root, now)


def report_node_directory(root: Path, now: datetime) -> Iterator[CertificateReport]:
    """Report the certificates in the root of a node agent."""
    for file, what in ((SERVING_FILE, "serving certificate"), (CLIENT_FILE, "renewed client certificate")):
        found = _read_certificate(root / file)
        if found is not None:
            yield _report(f"{what} of the agent", root / file, found, now, _BY_AGENT)


def report_client(certificate: x509.Certificate, where: str, now: datetime) -> CertificateReport:
    """Report the client certificate of a kubeconfig."""
    user, groups = read_subject(certificate) or ("", ())
    if user == ADMIN_USER:
        renewed_by = _BY_SERVER
    elif user in _COMPONENT_USERS or _COMPONENT_GROUPS.intersection(groups):
        renewed_by = _BY_PROCESS
    else:
        renewed_by = _BY_ISSUER
    return _report(f"client certificate of `{user}`", where, certificate, now, renewed_by)


def report_served(certificate: x509.Certificate, where: str, now: datetime) -> CertificateReport:
    """Report the certificate that a server shows."""
    return _report("certificate that the server shows", where, certificate, now, _BY_SERVER)


def _report(
    name: str, where: Path | str, certificate: x509.Certificate, now: datetime, renewed_by: str
) -> CertificateReport:
    is_authority = name.startswith("authority")
    state = _judge(certificate, now, renewed_by, AUTHORITY_WARNING if is_authority else _PERSON_WARNING)
    hint = _AUTHORITY_HINT if is_authority else _HINTS.get(renewed_by, _ISSUER_HINT)
    end = certificate.not_valid_after_utc
    return CertificateReport(
        name, str(where), end, state, renewed_by, "" if state is CertificateState.OK else hint
    )


def _judge(
    certificate: x509.Certificate, now: datetime, renewed_by: str, warning: timedelta
) -> CertificateState:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not is_valid_at(certificate, now):
        return CertificateState.EXPIRED if now >= end else CertificateState.NOT_YET
    if renewed_by in _HINTS:
        grace = min(timedelta(days=1), (end - start) / 20)
        is_late = now > compute_renewal_time(certificate) + grace
        return CertificateState.OVERDUE if is_late else CertificateState.OK
    return CertificateState.SOON if end - now < warning else CertificateState.OK


def _read_certificate(path: Path) -> x509.Certificate | None:
    try:
        found = parse_certificates(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as refused:
        raise InputError(f"`{path}` cannot be read: {(refused.strerror or str(refused)).lower()}") from None
    return found[0] if found else None
