"""Renewal of client certificates: an endpoint that components call before theirs expires.

`POST /dray/certificate` has the current certificate, a signing request for the next key and a proof that the
sender has the key of the current one (`dray.x509_certificates`). The answer is a certificate for the same
user and groups, valid for as long as the current one was. RBAC rules on the path decide who may call it: the
role `dray:certificate-renewal`, which nodes, drivers, schedulers and controllers have, and people have not;
their certificates end when whoever issued them decided.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from dray.api.json_text import read_json
from dray.clock import Clock
from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.http.errors import ApiStatusError, new_bad_request
from dray.server.http.requests import AUTHENTICATED, ApiRequest, ApiResponse, build_json_response
from dray.x509_certificates import (
    SKEW,
    PublicKey,
    is_issued_by,
    is_valid_at,
    parse_renewal_request,
    read_subject,
)


class ClientCertificateEndpoint:
    """Answers requests to renew a client certificate."""

    def __init__(self, keys: Path, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def answer(self, request: ApiRequest) -> ApiResponse:
        """Answer with the next certificate."""
        try:
            document = read_json(request.body)
            certificate, key = parse_renewal_request(document if isinstance(document, dict) else {})
        except ValueError as wrong:
            raise new_bad_request(f"not a request to renew a certificate: {wrong}") from None
        pem = await asyncio.to_thread(self._issue, request, certificate, key)
        return build_json_response({"certificate": pem.decode()}, 201)

    def _issue(self, request: ApiRequest, certificate: x509.Certificate, key: PublicKey) -> bytes:
        authority = CertificateAuthority.open_for_clients(self._keys, self._clock)
        subject = _check_holder(request, certificate)
        _check_certificate(authority.ca_certificate, certificate, self._clock.now())
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc - SKEW
        return authority.sign_client_certificate(subject, key, lifetime)


def _check_holder(request: ApiRequest, certificate: x509.Certificate) -> tuple[str, tuple[str, ...]]:
    """Return the subject of a certificate; raises 403 when it is another user than the caller."""
    subject = read_subject(certificate)
    groups = {group for group in request.user.groups if group != AUTHENTICATED}
    if request.impersonator is not None or subject is None:
        raise _new_refusal("only the user of a certificate may renew it")
    if subject[0] != request.user.name or set(subject[1]) - {AUTHENTICATED} != groups:
        raise _new_refusal(f"it is not a certificate of user `{request.user.name}` with the same groups")
    return subject


def _check_certificate(authority: x509.Certificate, certificate: x509.Certificate, now: datetime) -> None:
    if not is_issued_by(authority, certificate) or not _is_for_clients(certificate):
        raise _new_refusal("it is not a client certificate of this server's authority")
    if not is_valid_at(certificate, now):
        raise _new_refusal("it has expired; get a new kubeconfig from an administrator")


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def _new_refusal(why: str) -> ApiStatusError:
    return ApiStatusError(403, "Forbidden", f"the certificate is not renewed: {why}", {})
