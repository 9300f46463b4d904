"""Whole objects: every field of every kind is checked, and what is stored is what Kubernetes would store."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.codec import DecodedObject
from dray.api.json_text import write_json
from dray.api.kinds import KINDS, Kind, find_kind, get_kind, split_api_version
from dray.api.messages.field_tables import POINTER, TABLE_FILES, load_table, resolve_message
from dray.api.messages.object_types import find_object_type
from dray.api.whole_objects import (
    build_empty_status,
    decode_text,
    decode_whole_document,
    has_object_type,
)
from dray.errors import DecodeError
from tests.outside import ROOT

SAMPLES = ROOT.parent / "shared" / "api-samples" / "protobuf"
NO_SAMPLES = "no recorded objects of Kubernetes beside the repository (../shared/api-samples/protobuf)"
POD = get_kind("", "Pod")

MAX_PLACES = 80

Place = tuple[str | int, ...]


def list_samples() -> Iterator[Any]:
    for file in sorted(SAMPLES.glob("*.json")) if SAMPLES.is_dir() else []:
        document = json.loads(file.read_bytes())
        kind = find_kind(split_api_version(document.get("apiVersion", ""))[0], document.get("kind", ""))
        if kind is not None and kind.open and kind.version == split_api_version(document["apiVersion"])[1]:
            yield pytest.param(file, kind, id=file.stem)
    if not SAMPLES.is_dir():
        yield pytest.param(None, POD, marks=pytest.mark.skip(NO_SAMPLES))


EVERY_SAMPLE = pytest.mark.parametrize(("file", "kind"), list(list_samples()))


def decode(kind: Kind, document: dict[str, Any]) -> DecodedObject:
    return decode_whole_document(kind, kind.version, document)


def store(kind: Kind, document: dict[str, Any]) -> Any:
    return decode(kind, document).document


def walk(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value inside of a document that is not opaque, with its place."""
    if place[-1:] == ("fieldsV1",):
        return
    if place:
        yield place, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from walk(item, (*place, name))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from walk(item, (*place, position))


def pick_places(document: dict[str, Any]) -> list[tuple[Place, Any]]:
    """Places all over a document: all of them, or some of a large one, whose parts are in other samples."""
    places = list(walk(document))
    return places[:: 1 + len(places) // MAX_PLACES]


def change(document: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    holder: Any = changed
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    return changed


def list_steps(path: str) -> list[str]:
    """The steps of a path, however it writes keys of maps; keys have dots, too, so only the letters count."""
    return [step for step in path.replace("[", ".").replace("]", "").split(".") if step]


@EVERY_SAMPLE
def test_every_recorded_object_fits_and_stays_as_it_is(file: Path, kind: Kind) -> None:
    document = json.loads(file.read_bytes())
    fast = decode_text(kind, kind.version, file.read_bytes())
    slow = decode(kind, document)
    assert fast is not None
    assert not fast.unknown_fields + slow.unknown_fields
    assert fast.document == slow.document
    if kind.stored_as is None:
        assert json.loads(write_json(fast.document)) == document


@EVERY_SAMPLE
def test_a_wrong_type_anywhere_is_refused_with_the_path_of_that_field(file: Path, kind: Kind) -> None:
    document = json.loads(file.read_bytes())
    for place, value in pick_places(document):
        if place[0] in ("apiVersion", "kind") or (kind.name, place[0]) == ("ControllerRevision", "data"):
            continue
        wrong: Any = "text" if isinstance(value, dict | list | bool) else {"a": []}
        with pytest.raises(DecodeError) as refused:
            decode(kind, change(document, place, wrong))
        (problem,) = refused.value.problems
        assert list_steps(problem.path) == list_steps(".".join(map(str, place))), place
        assert "text" not in str(problem).partition("expected")[2]


@EVERY_SAMPLE
def test_an_unknown_field_anywhere_is_reported_and_dropped(file: Path, kind: Kind) -> None:
    document = json.loads(file.read_bytes())
    whole = decode(kind, document).document
    for place, value in pick_places(document):
        if not isinstance(value, dict) or is_map(document, place, kind):
            continue
        decoded = decode(kind, change(document, (*place, "nobodyKnows"), {"a": 1}))
        (unknown,) = decoded.unknown_fields
        assert list_steps(unknown.path) == list_steps(".".join(map(str, (*place, "nobodyKnows"))))
        assert decoded.document == whole


def is_map(document: dict[str, Any], place: Place, kind: Kind) -> bool:
    """Whether any key may stand at a place: maps and opaque values."""
    changed = change(document, (*place, "nobodyKnows"), None)
    try:
        return not decode(kind, changed).unknown_fields
    except DecodeError:
        return True


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


CANONICAL = {
    "nulls": (pod(containers=[], nodeName=None, volumes=None), pod(containers=[])),
    "empty values": (pod(containers=[], nodeName="", tolerations=[], nodeSelector={}), pod(containers=[])),
    "a pointer to an empty value": (
        pod(containers=[], priority=0, hostUsers=False, volumes=[{"name": "a", "emptyDir": {}}]),
        pod(containers=[], priority=0, hostUsers=False, volumes=[{"name": "a", "emptyDir": {}}]),
    ),
    "what is always shown": (
        pod(containers=[{"image": "i"}]),
        pod(containers=[{"name": "", "image": "i", "resources": {}}]),
    ),
    "a required list": (pod(), pod(containers=None)),
    "a null in a list": (pod(containers=[None]), pod(containers=[{"name": "", "resources": {}}])),
    "quantities": (
        pod(containers=[], overhead={"cpu": "0.5", "memory": 1024, "a": "1024Mi", "b": None}),
        pod(containers=[], overhead={"cpu": "500m", "memory": "1024", "a": "1Gi", "b": "0"}),
    ),
    "claims of KEP-3063": (
        pod(containers=[{"name": "a", "resources": {"claims": ["gpu"]}}]),
        pod(containers=[{"name": "a", "resources": {"claims": [{"name": "gpu"}]}}]),
    ),
}


@pytest.mark.parametrize(("given", "expected"), CANONICAL.values(), ids=CANONICAL)
def test_a_document_is_brought_to_the_form_of_kubernetes(given: Any, expected: Any) -> None:
    stored = {**expected, "status": {}}
    assert decode(POD, given).document == stored
    fast = decode_text(POD, "v1", write_json(given))
    assert fast is None or fast.document == stored
    again = decode_text(POD, "v1", write_json(stored))
    assert again is not None, "what is stored takes the fast path"
    assert again.document == stored


TIMES = {
    "2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00.987654321Z": "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00+02:00": "2026-01-31T10:00:00Z",
    "0999-01-31T12:00:00-00:30": "0999-01-31T12:30:00Z",
}
BAD_TIMES = ("", "yesterday", "2026-02-30T12:00:00Z", "2026-01-31 12:00:00Z", "2026-01-31T12:00:00", 5, True)


@pytest.mark.parametrize(("given", "expected"), TIMES.items())
def test_a_time_is_stored_in_utc_and_seconds(given: str, expected: str) -> None:
    document = {**pod(), "metadata": {"name": "p", "creationTimestamp": given}}
    stored = store(POD, document)
    assert stored["metadata"]["creationTimestamp"] == expected


@pytest.mark.parametrize("given", BAD_TIMES)
def test_a_text_that_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(DecodeError, match=r"metadata\.creationTimestamp: .*expected a time as RFC 3339"):
        decode(POD, {**pod(), "metadata": {"name": "p", "creationTimestamp": given}})


def test_a_time_with_microseconds_has_six_digits() -> None:
    lease = get_kind("coordination.k8s.io", "Lease")
    document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    stored = store(lease, {**document, "spec": {"renewTime": "2026-01-31T12:00:00.000001+01:00"}})
    assert stored["spec"] == {"renewTime": "2026-01-31T11:00:00.000001Z"}
    for wrong in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123Z", "2026-01-31T12:00:00.1234567Z"):
        with pytest.raises(DecodeError, match=r"spec\.renewTime"):
            decode(lease, {**document, "spec": {"renewTime": wrong}})


@pytest.mark.parametrize("given", ["*****", "aGVsbG8", 5, ["aGk="], {"a": "b"}])
def test_bytes_that_are_not_base64_are_refused_and_not_repeated(given: Any) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"password": given}}
    with pytest.raises(DecodeError, match=r"data\[password\]: .*Base64") as refused:
        decode(get_kind("", "Secret"), secret)
    assert "aGVsbG8" not in str(refused.value)
    assert "*****" not in str(refused.value)


def test_line_ends_in_base64_are_ignored() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"a": "aGVs\nbG8=\r\n"},
    }
    stored = store(get_kind("", "Secret"), secret)
    assert stored["data"] == {"a": "aGVsbG8="}


NUMBERS = {
    "too large for 32 bits": 2**31,
    "too small for 32 bits": -(2**31) - 1,
    "a fraction": 1.5,
    "a text": "1",
    "a boolean": True,
}


@pytest.mark.parametrize("given", NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_does_not_fit_its_field_is_refused(given: Any) -> None:
    with pytest.raises(DecodeError, match=r"spec\.priority: .*expected an integer"):
        decode(POD, pod(priority=given))


@pytest.mark.parametrize("given", [0, 8080, "http", ""])
def test_a_port_is_a_number_or_a_name(given: Any) -> None:
    probe = {"httpGet": {"port": given}}
    stored = store(POD, pod(containers=[{"name": "a", "livenessProbe": probe}]))
    assert stored["spec"]["containers"][0]["livenessProbe"] == probe


@pytest.mark.parametrize("given", [True, 1.5, 2**31, [], {}])
def test_anything_else_is_no_port(given: Any) -> None:
    probe = {"httpGet": {"port": given}}
    with pytest.raises(DecodeError, match=r"livenessProbe\.httpGet\.port: .*expected an integer"):
        decode(POD, pod(containers=[{"name": "a", "livenessProbe": probe}]))


def test_names_of_fields_are_case_sensitive() -> None:
    (unknown,) = decode(POD, pod(nodename="n")).unknown_fields
    assert str(unknown) == 'unknown field "spec.nodename"; did you mean `nodeName`?'


def test_a_message_inside_of_itself_is_checked_to_the_bottom() -> None:
    kind = get_kind("scheduling.k8s.io", "Workload")
    inner = "compositePodGroupTemplates"
    spec = {inner: [{inner: [{inner: [{"nobodyKnows": 1}]}]}]}
    document = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {}, "spec": spec}
    (unknown,) = decode(kind, document).unknown_fields
    assert unknown.path == f"spec.{inner}[0].{inner}[0].{inner}[0].nobodyKnows"


def test_an_event_of_either_group_has_what_clients_sort_by() -> None:
    event = get_kind("events.k8s.io", "Event")
    document = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "n"}
    decoded = decode(event, document)
    assert decoded.kind is get_kind("", "Event")
    assert decoded.document == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {},
        "message": "n",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }


def test_a_status_that_is_always_shown_has_its_counters() -> None:
    assert build_empty_status(get_kind("apps", "DaemonSet")) == {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    assert build_empty_status(get_kind("", "ConfigMap")) is None
    assert build_empty_status(get_kind("resource.k8s.io", "ResourceClaim")) is None


WITHOUT_TABLE = {"APIService", "CustomResourceDefinition"}


def test_every_open_kind_of_kubernetes_has_a_type() -> None:
    assert {
        kind.name for kind in KINDS if kind.open and not has_object_type(kind, kind.version)
    } == WITHOUT_TABLE


def test_every_message_can_be_built() -> None:
    for file in sorted(TABLE_FILES):
        group, version = file.split(".")
        for name, fields in load_table(file).items():
            suffix = "" if group == "core" else f"{group}.k8s.io/"
            struct_type = find_object_type("v1" if group == "meta" else f"{suffix}{version}", name)
            if struct_type is not None:
                assert struct_type() == struct_type()
            for field in fields:
                other, local = resolve_message(field.type, file)
                assert not field.is_always_shown or field.modifier != POINTER
                assert other in TABLE_FILES or local == field.type
