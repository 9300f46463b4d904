"""Certificates of the webhook: an authority, the serving certificate, and when each is replaced.

Theory of operation: API servers trust the authorities in the webhook configuration. A new authority is added
to them first, beside the old one; only later, when every API server has read the configuration, it signs the
serving certificate. The old authority stays until it expires. So at no moment a guard shows a certificate
that an API server does not trust. Serving certificates are replaced while they are still valid for a third of
their time.

Rules for this file: pure, except that keys are generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from dray.x509_certificates import (
    SigningAuthority,
    build_authority,
    build_common_name,
    build_general_names,
    build_serving_extensions,
    encode_certificate_pem,
    encode_key_pem,
    generate_key,
    is_issued_by,
    is_renewal_due,
    parse_certificates,
    parse_key_pem,
    read_alternative_names,
)

AUTHORITY_TIME: Final = timedelta(days=730)
SERVING_TIME: Final = timedelta(days=90)
OVERLAP: Final = timedelta(hours=1)
"""How long an authority is known to API servers before it signs."""
_AUTHORITY_NAME: Final = "dray-guard"


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What the Secret of the webhook contains, all PEM."""

    authorities: bytes = b""
    """The authorities that API servers trust, the newest first."""
    authority_key: bytes = b""
    """The key of the newest authority."""
    certificate: bytes = b""
    key: bytes = b""


def renew_material(known: TlsMaterial, names: Sequence[str], now: datetime) -> TlsMaterial:
    """Return the material as it should be now; equal to `known` when nothing is due."""
    authorities = [each for each in parse_certificates(known.authorities) if each.not_valid_after_utc > now]
    key = parse_key_pem(known.authority_key)
    signing = (
        SigningAuthority(authorities[0], key)
        if authorities and key is not None and authorities[0].public_key() == key.public_key()
        else None
    )
    if signing is None or is_renewal_due(signing.certificate, now):
        made = generate_key()
        certificate = build_authority(_AUTHORITY_NAME, made, now, AUTHORITY_TIME)
        authorities.insert(0, certificate)
        known = replace(known, authority_key=encode_key_pem(made))
        signing = SigningAuthority(certificate, made)
    known = replace(known, authorities=b"".join(map(encode_certificate_pem, authorities)))
    if _is_serving_valid(known, authorities, names, now):
        return known
    return _issue_serving_certificate(known, signing, names, now)


def _is_serving_valid(
    known: TlsMaterial, authorities: Sequence[x509.Certificate], names: Sequence[str], now: datetime
) -> bool:
    key = parse_key_pem(known.key)
    found = parse_certificates(known.certificate)
    if key is None or not found:
        return False
    certificate = found[0]
    issuer = next((each for each in authorities if is_issued_by(each, certificate)), None)
    if (
        issuer is None
        or certificate.public_key() != key.public_key()
        or certificate.not_valid_after_utc <= now
        or read_alternative_names(certificate) != build_general_names(names)
    ):
        return False
    newest = authorities[0]
    # A new authority signs when API servers have had the time to read it.
    is_superseded = issuer != newest and now - newest.not_valid_before_utc > OVERLAP
    return not is_renewal_due(certificate, now) and not is_superseded


def _issue_serving_certificate(
    known: TlsMaterial, signing: SigningAuthority, names: Sequence[str], now: datetime
) -> TlsMaterial:
    key = generate_key()
    subject = build_common_name(names[0][:64])
    made = signing.sign(subject, key.public_key(), (now, SERVING_TIME), build_serving_extensions(names))
    return replace(known, certificate=encode_certificate_pem(made), key=encode_key_pem(key))


def read_expiry(material: TlsMaterial) -> datetime | None:
    """When the serving certificate expires; None when there is none."""
    found = parse_certificates(material.certificate)
    return found[0].not_valid_after_utc if found else None
