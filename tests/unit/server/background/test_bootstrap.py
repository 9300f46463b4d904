"""The objects of every cluster: complete on a new store, completed on an older one."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from cryptography import x509

from dray.server.background.bootstrap import build_initial_objects
from dray.server.background.extension_authentication import (
    AUTHENTICATION_MAP,
    build_authentication_map,
    complete_authentication_data,
)
from dray.x509_certificates import build_authority, encode_certificate_pem, generate_key, is_issued_by

NOW = datetime(2027, 1, 15, tzinfo=UTC)
CA_PEM = "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"


def test_the_front_proxy_has_a_ca_of_its_own_that_signs_nothing() -> None:
    data = build_authentication_map(CA_PEM, NOW)["data"]
    again = build_authentication_map(CA_PEM, NOW)["data"]
    assert data["client-ca-file"] == CA_PEM
    proxy = data["requestheader-client-ca-file"]
    assert proxy != again["requestheader-client-ca-file"]
    certificate = x509.load_pem_x509_certificate(proxy.encode())
    assert is_issued_by(certificate, certificate)
    assert proxy not in data["client-ca-file"]
    lists = {name: json.loads(data[name]) for name in data if not name.endswith("-ca-file")}
    assert lists == {
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-username-headers": ["X-Remote-User"],
    }


def test_a_server_without_a_ca_publishes_none() -> None:
    assert build_authentication_map("", NOW)["data"] == {}


def test_a_stored_map_keeps_what_it_has_and_gets_what_it_lacks() -> None:
    own = build_authentication_map(CA_PEM, NOW)["data"]
    assert complete_authentication_data({"client-ca-file": CA_PEM}, own) == own
    assert complete_authentication_data(own, build_authentication_map(CA_PEM, NOW)["data"]) == own
    assert complete_authentication_data({}, {}) == {}


def test_the_cas_of_two_servers_are_trusted_both() -> None:
    pems = [
        encode_certificate_pem(
            build_authority("dray", generate_key(), NOW, datetime(2037, 1, 1, tzinfo=UTC) - NOW)
        ).decode()
        for _ in range(2)
    ]
    stored = complete_authentication_data({"client-ca-file": pems[0]}, {"client-ca-file": pems[1]})
    assert [encode_certificate_pem(each).decode() for each in _load(stored["client-ca-file"])] == pems
    assert complete_authentication_data(stored, {"client-ca-file": pems[0]}) == stored


def _load(text: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(text.encode())


def test_use_of_tokens_is_recorded_since_the_first_start() -> None:
    maps = {
        each["metadata"]["name"]: each["data"]
        for each in build_initial_objects(CA_PEM, NOW)
        if each["kind"] == "ConfigMap"
    }
    assert maps.keys() == {AUTHENTICATION_MAP, "kube-apiserver-legacy-service-account-token-tracking"}
    assert maps["kube-apiserver-legacy-service-account-token-tracking"] == {"since": "2027-01-15"}
