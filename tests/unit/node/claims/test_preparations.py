"""Names and content of Preparations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.validation import validate_create
from dray.node.claims.preparations import build_preparation, build_preparation_name, parse_drivers
from dray.node.claims.record import DriverPart, RecordedClaim
from dray.values.names import check_dns_subdomain

UID = "0b5c2a4e-6f0f-4c58-9a53-0d3a5c8f9c11"


def test_a_name_contains_claim_and_node():
    assert build_preparation_name(UID, "node-a.example.com") == f"{UID}.node-a.example.com"


@pytest.mark.parametrize("node", ["n" * 63 + "." + "n" * 63 + "." + "n" * 63 + "." + "n" * 61, "Node_A"])
def test_a_name_that_would_not_be_legal_is_a_short_one(node):
    name = build_preparation_name(UID, node)
    assert not check_dns_subdomain(name)
    assert name == build_preparation_name(UID, node)
    assert name != build_preparation_name(UID, node + "x")


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_name_is_legal(uid, node):
    assert not check_dns_subdomain(build_preparation_name(uid, node))


def test_a_preparation_is_valid_and_names_its_drivers():
    parts = (DriverPart(driver="a.example.com"), DriverPart(driver="b.example.com"))
    said = build_preparation(RecordedClaim(uid=UID, namespace="ns", name="c", parts=parts), "node-a")
    assert validate_create(said) == []
    assert parse_drivers(said) == ("a.example.com", "b.example.com")
    assert (said.spec.node_name, said.spec.claim.uid) == ("node-a", UID)
