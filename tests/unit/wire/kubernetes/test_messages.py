"""Documents and protobuf messages of Kubernetes say the same, kind by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.json_text import read_json, write_json
from dray.api.kinds import KINDS
from dray.api.messages.field_tables import INLINE, LIST, MAP, META_KINDS, POINTER, TABLE_FILES
from dray.wire.kubernetes import (
    UnencodableValueError,
    UnknownMessageError,
    decode,
    encode,
    encode_watch_event,
    has_message,
    message_tables,
)
from dray.wire.kubernetes.decoding import LEAF_DECODERS
from dray.wire.kubernetes.encoding import LEAF_ENCODERS
from dray.wire.kubernetes.message_tables import (
    MessageType,
    find_message,
    find_root_message,
)
from tests.outside import ROOT

SAMPLES = ROOT.parent / "shared" / "api-samples" / "protobuf"
NO_SAMPLES = "no recorded protobuf of Kubernetes beside the repository (../shared/api-samples/protobuf)"


def list_samples() -> Iterator[Any]:
    for file in sorted(SAMPLES.glob("*.pb")) if SAMPLES.is_dir() else []:
        yield pytest.param(file, id=file.stem)
    if not SAMPLES.is_dir():
        yield pytest.param(None, marks=pytest.mark.skip(NO_SAMPLES))


@pytest.mark.parametrize("file", list(list_samples()))
def test_every_recorded_object_says_the_same_in_json_and_in_protobuf(file: Path) -> None:
    document = json.loads(file.with_suffix(".json").read_bytes())
    kind = file.stem.rpartition(".")[2]
    assert json.loads(write_json(decode(file.read_bytes(), ("v1", kind)))) == document
    if kind != "WatchEvent":
        assert decode(encode(document)) == read_json(file.with_suffix(".json").read_bytes())


def walk_messages() -> Iterator[MessageType]:
    for file in sorted(TABLE_FILES):
        yield from message_tables._load_file(file).values()


def test_every_type_in_the_tables_is_there() -> None:
    assert LEAF_DECODERS.keys() == LEAF_ENCODERS.keys()
    for message_type in walk_messages():
        for field in message_type.fields.values():
            if field.type not in LEAF_DECODERS:
                assert find_message(field.type, message_type.file).name


LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=4),
    "bytes": st.sampled_from(["", "AA==", "YWJj"]),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "Time": st.sampled_from(["1970-01-01T00:00:01Z", "2027-01-15T08:00:00Z", "0001-01-02T00:00:00Z"]),
    "MicroTime": st.sampled_from(["2027-01-15T08:00:00.123456Z", "1969-12-31T23:59:59.000000Z"]),
    "Quantity": st.sampled_from(["0", "10Gi", "100m"]),
    "Json": st.sampled_from([{}, {"a": [1, None]}, [], "text", False, 0]),
    "FieldsV1": st.sampled_from([{"f:spec": {}}]),
    "IntOrString": st.one_of(st.integers(0, 2**31 - 1), st.text(max_size=3)),
    "Strings": st.lists(st.text(max_size=3), max_size=2),
}


def draw_document(draw: st.DrawFn, message_type: MessageType, depth: int) -> dict[str, Any]:
    """A document that a message can hold: only what Go would not leave out."""
    document: dict[str, Any] = {}
    for field in message_type.fields.values():
        if (depth > 3 and field.type not in LEAVES) or not draw(st.booleans()):
            continue

        def draw_value(field: Any = field) -> Any:
            if field.type in LEAVES:
                return draw(LEAVES[field.type])
            return draw_document(draw, find_message(field.type, message_type.file), depth + 1)

        if field.modifier == INLINE:
            document |= draw_value()
        elif field.modifier == LIST:
            document[field.name] = [draw_value() for _ in range(draw(st.integers(1, 2)))]
        elif field.modifier == MAP:
            keys = draw(st.sets(st.text(max_size=3), min_size=1, max_size=2))
            document[field.name] = {key: draw_value() for key in sorted(keys)}
        elif (value := draw_value()) or field.modifier or field.type not in LEAVES:
            document[field.name] = value
    return document


ROOTS = [
    ("v1", "Pod"),
    ("v1", "Node"),
    ("v1", "Service"),
    ("v1", "Event"),
    ("events.k8s.io/v1", "Event"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("coordination.k8s.io/v1", "Lease"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1beta1", "ResourceSlice"),
    ("resource.k8s.io/v1beta2", "DeviceClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "DeleteOptions"),
    ("v1", "Status"),
]


@given(st.data(), st.sampled_from(ROOTS))
def test_a_document_that_is_written_and_read_is_the_same(data: Any, root: tuple[str, str]) -> None:
    content = draw_document(data.draw, find_root_message(*root), 0)
    document = {"apiVersion": root[0], "kind": root[1], **content}
    assert decode(encode(document)) == document


def test_every_kind_of_kubernetes_has_a_message_in_every_version() -> None:
    without = {
        kind.group
        for kind in KINDS
        for version in kind.versions
        if not has_message(kind.format_api_version(version), kind.name)
    }
    # The first two are dray's own; Kubernetes writes the others only as JSON, too.
    assert without == {"cdi.k8s.io", "dray.dev", "apiextensions.k8s.io", "apiregistration.k8s.io"}


@pytest.mark.parametrize("kind", sorted(META_KINDS))
def test_kinds_of_every_group_are_there_in_every_group(kind: str) -> None:
    assert has_message("resource.k8s.io/v1", kind)


def test_a_list_is_a_message_of_its_items() -> None:
    items = [{"metadata": {"name": "a"}, "data": {"x": "y"}}, {"metadata": {"name": "b"}}]
    names = {"apiVersion": "v1", "kind": "ConfigMapList"}
    document = {**names, "metadata": {"resourceVersion": "5"}, "items": items}
    assert decode(encode(document)) == document


def test_a_zero_is_kept_where_go_has_a_pointer_or_always_shows_it() -> None:
    status = {"replicas": 0, "collisionCount": 0, "readyReplicas": 0}
    document = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 0}, "status": status}
    read = decode(encode(document))
    assert read["spec"] == {"replicas": 0}
    assert read["status"] == {"replicas": 0, "collisionCount": 0}
    assert find_root_message("apps/v1", "StatefulSet").fields[2].modifier != POINTER


def test_fields_that_kubernetes_does_not_know_are_left_out() -> None:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "ours": {"x": 1}}
    assert decode(encode(document)) == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"metadata": []}, "metadata: expected an object, not []"),
        ({"spec": {"containers": {}}}, "spec.containers: expected a list, not {}"),
        ({"spec": {"containers": [{"name": 5}]}}, "spec.containers[0].name: expected string, not 5"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels[a]: expected string, not 1"),
        ({"metadata": {"labels": "a"}}, "metadata.labels: expected an object"),
        ({"metadata": {"creationTimestamp": "never"}}, "metadata.creationTimestamp: expected Time"),
        ({"spec": {"hostNetwork": 1}}, "spec.hostNetwork: expected bool, not 1"),
        ({"spec": {"priority": 2**40}}, "spec: "),
    ],
)
def test_a_value_of_another_type_is_named(content: dict[str, Any], named: str) -> None:
    with pytest.raises(UnencodableValueError) as refused:
        encode({"apiVersion": "v1", "kind": "Pod", **content})
    assert named in str(refused.value)


def test_a_kind_without_a_message_is_named() -> None:
    with pytest.raises(UnknownMessageError, match=r"Preparation in dray\.dev/v1alpha1"):
        encode({"apiVersion": "dray.dev/v1alpha1", "kind": "Preparation"})


def test_a_watch_event_has_its_length_before_it() -> None:
    namespace = encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    framed = encode_watch_event("ADDED", namespace)
    assert int.from_bytes(framed[:4], "big") == len(framed) - 4
    event = find_root_message("v1", "WatchEvent").decode(framed[4:])
    assert event.type == "ADDED"
    assert namespace in event.object
