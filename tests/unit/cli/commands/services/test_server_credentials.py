"""`dray server credentials`: a kubeconfig on standard output, and errors when there is none."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from dray.server.auth.authn.certificates import CertificateAuthority
from dray.server.auth.authn.kubeconfig import build_kubeconfig


@pytest.fixture
def keys(desk: Path) -> Path:
    certificates = CertificateAuthority.open(desk / "dray-data" / "keys", ["dray.example.com"])
    admin = build_kubeconfig(
        "https://127.0.0.1:7443", certificates.ca_pem, certificates.issue_client_certificate("admin")
    )
    (desk / "dray-data" / "admin.kubeconfig").write_text(yaml.safe_dump(admin))
    return desk / "dray-data" / "keys"


def test_a_kubeconfig_for_a_node(typed, keys):
    before = (keys / "serving.pem").read_bytes()
    result = typed("server", "credentials", "system:node:n1", "--group", "system:nodes", "--days", "30")
    assert (result.code, result.err) == (0, "")
    document = yaml.safe_load(result.out)
    (user,) = document["users"]
    made = x509.load_pem_x509_certificate(b64decode(user["user"]["client-certificate-data"]))
    assert user["name"] == "system:node:n1"
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:7443"
    assert [one.value for one in made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "system:node:n1"
    ]
    assert [one.value for one in made.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == [
        "system:nodes"
    ]
    assert 29 <= (made.not_valid_after_utc - made.not_valid_before_utc).days <= 30
    assert (keys / "serving.pem").read_bytes() == before


def test_the_address_can_be_given(typed, keys):
    (keys.parent / "admin.kubeconfig").unlink()
    result = typed("server", "credentials", "jane", "--server", "https://dray.example.com")
    assert yaml.safe_load(result.out)["clusters"][0]["cluster"]["server"] == "https://dray.example.com"


def test_what_is_missing_is_said_in_a_line(typed, desk):
    result = typed("server", "credentials", "jane")
    assert (result.code, result.out) == (2, "")
    assert (
        "there are no keys in `dray-data/keys`; name the directory of a server with --data-dir" in result.err
    )


def test_an_unknown_address_must_be_given(typed, keys):
    (keys.parent / "admin.kubeconfig").unlink()
    result = typed("server", "credentials", "jane")
    assert (result.code, result.out) == (2, "")
    assert "does not have the server's address; give it with --server" in result.err
