"""When a certificate is to be renewed, and what a request to renew one proves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from dray.x509_certificates import (
    SKEW,
    SigningAuthority,
    build_authority,
    build_common_name,
    build_renewal_request,
    compute_renewal_time,
    encode_certificate_pem,
    generate_key,
    is_renewal_due,
    parse_certificates,
    parse_renewal_request,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = generate_key()
AUTHORITY_KEY = generate_key()
AUTHORITY = SigningAuthority(build_authority("ca", AUTHORITY_KEY, NOW, timedelta(days=3650)), AUTHORITY_KEY)


def issued(days: int = 90) -> x509.Certificate:
    usage = [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])]
    return AUTHORITY.sign(build_common_name("n"), KEY.public_key(), (NOW, timedelta(days=days)), usage)


def test_certificates_are_renewed_around_two_thirds_of_their_lifetime_and_not_all_at_once():
    found = [issued() for _ in range(40)]
    lifetime = timedelta(days=90) + SKEW
    shares = [(compute_renewal_time(each) - each.not_valid_before_utc) / lifetime for each in found]
    assert all(7 / 12 - 0.001 <= share <= 2 / 3 + 0.001 for share in shares)
    assert max(shares) - min(shares) > 0.02
    assert [compute_renewal_time(each) for each in found] == [compute_renewal_time(each) for each in found]


@pytest.mark.parametrize(("days", "due"), [(-1, True), (0, False), (50, False), (61, True), (91, True)])
def test_a_certificate_is_due_before_its_start_and_after_its_renewal_time(days: int, due: bool):
    assert is_renewal_due(issued(), NOW + timedelta(days=days)) is due


@pytest.mark.parametrize(
    "content", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"]
)
def test_what_is_no_certificate_is_none(content: bytes):
    assert parse_certificates(content) == []


def test_a_request_has_the_certificate_and_the_next_key():
    certificate, following = issued(), generate_key()
    request = build_renewal_request(encode_certificate_pem(certificate), KEY, following)
    assert parse_renewal_request(request) == (certificate, following.public_key())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"proof": ""}, "is not signed by the key of the certificate"),
        ({"proof": None}, "expected `certificate`, `request` and `proof`"),
        ({"request": "x"}, "PEM"),
        ({"certificate": "x"}, "PEM"),
    ],
)
def test_a_request_that_proves_nothing_is_refused(change: dict[str, str | None], why: str):
    request = build_renewal_request(encode_certificate_pem(issued()), KEY, generate_key())
    with pytest.raises(ValueError, match=why):
        parse_renewal_request({**request, **change})


def test_the_proof_of_another_key_is_refused():
    request = build_renewal_request(encode_certificate_pem(issued()), generate_key(), generate_key())
    with pytest.raises(ValueError, match="is not signed by the key of the certificate"):
        parse_renewal_request(request)
