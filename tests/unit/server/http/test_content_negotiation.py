"""The choice of a response format from the `Accept` header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.server.http.content_negotiation import (
    DISCOVERY_FORMATS,
    DOCUMENT_FORMATS,
    OBJECT_FORMATS,
    WATCH_FORMATS,
    Representation,
    ResponseFormat,
    negotiate,
)
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import JSON, YAML
from tests.unit.server.samples import sample

PB = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OLD_TABLE = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
PARTS = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTS_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
GROUPS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OLD_GROUPS = GROUPS.replace("v2", "v2beta1")


@pytest.mark.parametrize(
    ("accept", "offer", "form"),
    [
        ("", OBJECT_FORMATS, ResponseFormat()),
        ("*/*", OBJECT_FORMATS, ResponseFormat()),
        (JSON, OBJECT_FORMATS, ResponseFormat()),
        ("application/json, */*", OBJECT_FORMATS, ResponseFormat()),
        ("APPLICATION/JSON ; charset=utf-8", OBJECT_FORMATS, ResponseFormat()),
        (f"{PB},application/json", OBJECT_FORMATS, ResponseFormat()),
        (f"{PB},*/*", OBJECT_FORMATS, ResponseFormat()),
        ("application/json;stream=watch", WATCH_FORMATS, ResponseFormat()),
        ("application/*", OBJECT_FORMATS, ResponseFormat()),
        ("text/html,application/xhtml+xml,*/*;q=0.8", OBJECT_FORMATS, ResponseFormat()),
        (YAML, OBJECT_FORMATS, ResponseFormat(YAML)),
        ("application/json;q=0.2, application/yaml;q=0.9", OBJECT_FORMATS, ResponseFormat(YAML)),
        ("*/*, application/yaml", OBJECT_FORMATS, ResponseFormat(YAML)),
        ("application/yaml;q=0, */*;q=0.1", OBJECT_FORMATS, ResponseFormat()),
        ("application/yaml, application/json;q=0.1", WATCH_FORMATS, ResponseFormat()),
        (
            f"{TABLE},{OLD_TABLE},application/json",
            OBJECT_FORMATS,
            ResponseFormat(JSON, Representation.TABLE, "v1"),
        ),
        (
            f"{OLD_TABLE},application/json",
            OBJECT_FORMATS,
            ResponseFormat(JSON, Representation.TABLE, "v1beta1"),
        ),
        (f"{TABLE},application/json", WATCH_FORMATS, ResponseFormat(JSON, Representation.TABLE, "v1")),
        (f"{TABLE},application/json", DOCUMENT_FORMATS, ResponseFormat()),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", OBJECT_FORMATS, ResponseFormat()),
        (
            f"{PB};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{PARTS},*/*",
            OBJECT_FORMATS,
            ResponseFormat(JSON, Representation.METADATA, "v1"),
        ),
        (f"{PARTS_LIST},*/*", OBJECT_FORMATS, ResponseFormat(JSON, Representation.METADATA_LIST, "v1")),
        (
            f"{GROUPS},{OLD_GROUPS},application/json",
            DISCOVERY_FORMATS,
            ResponseFormat(JSON, Representation.DISCOVERY, "v2"),
        ),
        (
            f"{OLD_GROUPS},application/json",
            DISCOVERY_FORMATS,
            ResponseFormat(JSON, Representation.DISCOVERY, "v2beta1"),
        ),
        (f"{GROUPS},application/json", OBJECT_FORMATS, ResponseFormat()),
    ],
)
def test_the_best_clause_that_matches_an_offer_wins(accept, offer, form):
    assert negotiate(accept, offer) == form


@pytest.mark.parametrize(
    "accept", [PB, "text/plain", "application/json;q=0", "application/json;q=x", TABLE.replace("json", "xml")]
)
def test_an_unacceptable_response_is_a_406_that_lists_the_offers(accept, pytestconfig):
    with pytest.raises(ApiStatusError) as refused:
        negotiate(accept)
    ours, theirs = refused.value.to_status(), sample(pytestconfig, "err_406.json")
    assert ours["message"].endswith("application/json, application/yaml, application/json;stream=watch")
    assert ours | {"message": ""} == theirs | {"message": ""}


def test_a_representation_that_is_not_offered_is_refused():
    with pytest.raises(ApiStatusError, match="Not Acceptable"):
        negotiate(TABLE, DISCOVERY_FORMATS)


def test_only_discovery_names_its_representation_in_the_content_type():
    assert negotiate(GROUPS, DISCOVERY_FORMATS).content_type == GROUPS
    assert negotiate(TABLE, OBJECT_FORMATS).content_type == JSON


def test_json_is_sent_unchanged_and_yaml_in_block_style():
    text = b'{"kind":"Pod","metadata":{"name":"a"},"count":1.50}'
    assert negotiate(JSON).encode(text) is text
    assert negotiate(YAML).encode(text) == b"kind: Pod\nmetadata:\n  name: a\ncount: 1.50\n"


@given(st.text(alphabet='abc/*;=,q.01 "jsonvTable', max_size=60))
def test_no_accept_header_raises_an_unexpected_error(accept):
    assert _tried(accept) in (JSON, YAML, 406)


def _tried(accept: str) -> str | int:
    try:
        return negotiate(accept).media
    except ApiStatusError as refused:
        return refused.code
