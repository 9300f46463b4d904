"""Certificates of the webhook over two years: at every moment API servers trust what the guard shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509

from dray.guard.tls_rotation import AUTHORITY_TIME, SERVING_TIME, TlsMaterial, read_expiry, renew_material
from dray.x509_certificates import is_issued_by

NAMES = ["dray-guard.kube-system.svc", "127.0.0.1"]
START = datetime(2026, 1, 1, tzinfo=UTC)


def is_trusted(bundle: bytes, certificate: bytes, now: datetime) -> bool:
    (leaf,) = x509.load_pem_x509_certificates(certificate)
    return leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc and any(
        is_issued_by(each, leaf) and each.not_valid_before_utc <= now < each.not_valid_after_utc
        for each in x509.load_pem_x509_certificates(bundle)
    )


def test_nothing_changes_until_something_is_due():
    first = renew_material(TlsMaterial(), NAMES, START)
    assert is_trusted(first.authorities, first.certificate, START)
    assert renew_material(first, NAMES, START + timedelta(minutes=1)) == first
    assert renew_material(first, NAMES, START + SERVING_TIME / 2) == first
    renewed = renew_material(first, NAMES, START + SERVING_TIME * 0.7)
    assert renewed.authorities == first.authorities
    assert renewed.certificate != first.certificate
    expiry = read_expiry(renewed)
    assert expiry is not None
    assert expiry > START + SERVING_TIME


def test_over_years_the_certificate_is_trusted_by_the_newest_and_by_the_previous_bundle():
    """API servers read the configuration late: a bundle of twelve hours ago has to do, too."""
    material = renew_material(TlsMaterial(), NAMES, START)
    bundles, authorities = [material.authorities], set()
    now = START
    while now < START + 3 * AUTHORITY_TIME:
        material = renew_material(material, NAMES, now)
        for bundle in (material.authorities, bundles[-1]):
            assert is_trusted(bundle, material.certificate, now), now
        assert renew_material(material, NAMES, now) == material
        bundles.append(material.authorities)
        authorities.add(material.authority_key)
        now += timedelta(hours=12)
    assert len(authorities) >= 4
    assert len(x509.load_pem_x509_certificates(material.authorities)) <= 3


def test_other_names_and_damaged_material_are_replaced():
    first = renew_material(TlsMaterial(), NAMES, START)
    renamed = renew_material(first, ["other"], START)
    assert renamed.authorities == first.authorities
    assert renamed.certificate != first.certificate
    for broken in (
        TlsMaterial(first.authorities, b"no key", first.certificate, first.key),
        TlsMaterial(b"no certificate", first.authority_key, first.certificate, first.key),
        TlsMaterial(first.authorities, first.authority_key, first.certificate, b""),
        TlsMaterial(first.authorities, first.authority_key, b"x", first.key),
    ):
        healed = renew_material(broken, NAMES, START)
        assert is_trusted(healed.authorities, healed.certificate, START)
