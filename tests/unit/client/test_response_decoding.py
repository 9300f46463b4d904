"""Recorded responses of a real kube-apiserver are decoded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dray.client import errors
from dray.client.errors import parse_api_error
from dray.client.object_refs import get_kind
from dray.client.response_decoding import Bookmark, ResponseDecoder
from dray.client.transport import TransportResponse
from tests.outside import corpus_dir


@pytest.fixture
def recorded(pytestconfig):
    def read(name: str) -> bytes:
        corpus = corpus_dir(pytestconfig)
        path = corpus.parent / "api-samples" / name if corpus else Path(name)
        if not path.is_file():
            pytest.skip(f"no recorded answer `{name}` (api-samples) beside the corpus")
        return path.read_bytes()

    return read


@pytest.mark.parametrize(
    ("file", "kind"),
    [("watchlist_resourceclaims.jsonl", "ResourceClaim.resource.k8s.io"), ("watch_rv1.jsonl", "Pod")],
)
def test_every_recorded_event_is_read(recorded, file, kind):
    reader = ResponseDecoder(get_kind(kind), "v1")
    lines = recorded(file).splitlines()
    assert lines
    for line in lines:
        event, said = reader.decode_event(line), json.loads(line)
        metadata = said["object"]["metadata"]
        if isinstance(event, Bookmark):
            assert said["type"] == "BOOKMARK"
            assert event.resource_version == metadata["resourceVersion"]
            assert event.initial_events_end == ("annotations" in metadata)
        else:
            found = event.object if reader.kind.open else event.object.metadata
            name = found["metadata"]["name"] if reader.kind.open else found.name
            assert (event.type, name) == (said["type"], metadata["name"])
    assert reader.unknown_fields == set()


@pytest.mark.parametrize(
    ("file", "code", "shape"),
    [
        ("err_400_strict.json", 400, errors.BadRequestError),
        ("err_401.json", 401, errors.UnauthorizedError),
        ("err_403_anonymous.json", 403, errors.ForbiddenError),
        ("err_404_object.json", 404, errors.NotFoundError),
        ("err_404_resource.txt", 404, errors.NotFoundError),
        ("err_409_conflict.json", 409, errors.ConflictError),
        ("err_409_exists.json", 409, errors.AlreadyExistsError),
        ("err_422_claim.json", 422, errors.InvalidObjectError),
        ("err_504_toolarge.json", 504, errors.ServerTimeoutError),
    ],
)
def test_every_recorded_failure_has_its_name(recorded, file, code, shape):
    failure = parse_api_error(TransportResponse(code, {}, recorded(file)))
    assert type(failure) is shape
    assert failure.message


def test_recorded_details_are_kept(recorded):
    invalid = parse_api_error(TransportResponse(422, {}, recorded("err_422_claim.json")))
    assert [cause.field for cause in invalid.causes] == [
        "spec.devices.requests[0].name",
        "spec.devices.requests[0].exactly.deviceClassName",
    ]
    late = parse_api_error(TransportResponse(504, {}, recorded("err_504_toolarge.json")))
    assert (late.retry_after, late.causes[0].reason) == (1, "ResourceVersionTooLarge")
    missing = parse_api_error(TransportResponse(404, {}, recorded("err_404_resource.txt")))
    assert isinstance(missing, errors.NotFoundError)
    assert missing.is_unknown_resource
    absent = parse_api_error(TransportResponse(404, {}, recorded("err_404_object.json")))
    assert isinstance(absent, errors.NotFoundError)
    assert not absent.is_unknown_resource
