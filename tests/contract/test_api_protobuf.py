"""Objects in protobuf: what clients built for Kubernetes send and read is what JSON says."""

from __future__ import annotations

from typing import Any

import pytest

from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF
from dray.wire.kubernetes.message_tables import find_root_message
from tests.contract.api import Api, Document, path, serving
from tests.contract.documents import (
    claim,
    config,
    device_class,
    node,
    old_claim,
    pod,
    resource_slice,
    template,
)

SEND = {"content-type": PROTOBUF}
READ = {"accept": f"{PROTOBUF},application/json"}
BOTH = SEND | READ

TABLE = "as=Table;v=v1;g=meta.k8s.io"

LEASE: Document = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l", "namespace": "default"},
    "spec": {"holderIdentity": "me", "leaseTransitions": 0, "renewTime": "2027-01-15T08:00:00.123456Z"},
}
OBJECTS: list[tuple[str, Document]] = [
    (path("resourceslices"), resource_slice("s")),
    (path("deviceclasses"), device_class()),
    (path("resourceclaims"), claim("c")),
    (path("resourceclaims", version="v1beta1"), old_claim("c")),
    (path("resourceclaims", version="v1beta2"), old_claim("c", "v1beta2")),
    (path("resourceclaimtemplates"), template("t")),
    (path("pods"), pod("p")),
    (path("nodes"), node("n")),
    (path("configmaps"), config("m")),
    (path("leases"), LEASE),
]


@pytest.mark.parametrize(
    ("home", "document"), OBJECTS, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_an_object_is_the_same_whichever_way_it_is_written_and_read(
    home: str, document: Document
) -> None:
    async with serving() as api:
        made = await api.ask("POST", home, kubernetes.encode(document), headers=BOTH)
        assert (made.code, made.headers["content-type"]) == (201, PROTOBUF), made.document
        place = f"{home}/{document['metadata']['name']}"
        in_json, in_protobuf = await api.get(place), (await api.ask("GET", place, headers=READ)).document
        assert in_protobuf == in_json == made.document
        for field, value in document.items():
            if field != "metadata":
                assert contains(in_json[field], value), field
        again = {**in_json, "metadata": {**in_json["metadata"], "labels": {"a": "b"}}}
        changed = await api.ask("PUT", place, kubernetes.encode(again), headers=BOTH)
        assert changed.document["metadata"]["labels"] == {"a": "b"}
        listed = await api.ask("GET", home, headers=READ)
        assert listed.headers["content-type"] == PROTOBUF
        assert changed.document["metadata"] in [each["metadata"] for each in listed.document["items"]]


def contains(found: Any, expected: Any) -> bool:
    """Whether a value has everything that was sent, besides what the server added."""
    if isinstance(expected, dict):
        return all(name in found and contains(found[name], value) for name, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(contains, found, expected))
    return bool(found == expected)


async def test_empty_opaque_parameters_survive() -> None:
    opaque = {"opaque": {"driver": "gpu.example.com", "parameters": {}}}
    document = claim("c")
    document["spec"]["devices"]["config"] = [opaque]
    async with serving() as api:
        made = await api.ask("POST", path("resourceclaims"), kubernetes.encode(document), headers=BOTH)
        assert made.document["spec"]["devices"]["config"] == [opaque]


async def test_a_kind_without_a_message_comes_in_json() -> None:
    async with serving() as api:
        where = "/apis/dray.dev/v1alpha1/preparations"
        listed = await api.ask("GET", where, headers=READ)
        assert listed.headers["content-type"] == "application/json"
        refused = await api.ask("GET", where, headers={"accept": PROTOBUF})
        assert refused.code == 406


async def test_errors_and_tables_come_in_json() -> None:
    async with serving() as api:
        missing = await api.ask("GET", path("pods", "none"), headers=READ)
        assert (missing.code, missing.headers["content-type"]) == (404, "application/json")
        accept = f"{PROTOBUF};{TABLE},application/json;{TABLE}"
        table = await api.ask("GET", path("pods"), headers={"accept": accept})
        assert table.document["kind"] == "Table"


async def test_an_object_that_protobuf_cannot_hold_comes_in_json() -> None:
    odd = config("odd") | {"immutable": "yes"}
    async with serving() as api:
        await api.plant(odd)
        read = await api.ask("GET", path("configmaps", "odd"), headers=READ)
        assert (read.headers["content-type"], read.document["immutable"]) == ("application/json", "yes")
        refused = await api.ask("GET", path("configmaps", "odd"), headers={"accept": PROTOBUF})
        assert (refused.code, "immutable: expected bool" in refused.message) == (406, True)


async def read_events(api: Api, count: int) -> list[tuple[str, Document]]:
    """Type and object of the first events of a watch of config maps, in protobuf."""
    events: list[tuple[str, Document]] = []
    async with api.watch(path("configmaps"), accept=PROTOBUF, allowWatchBookmarks="true") as watch:
        assert watch.headers["content-type"] == f"{PROTOBUF};stream=watch"
        rest = b""
        await api.create(config("b"))
        while len(events) < count:
            rest += await anext(watch._chunks)
            while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
                event = find_root_message("v1", "WatchEvent").decode(rest[4 : 4 + size])
                raw = kubernetes.decode(event.object[event.object.index(b"k8s\x00") :])
                events.append((event.type, raw))
                rest = rest[4 + size :]
    return events


async def test_a_watch_sends_protobuf_messages() -> None:
    async with serving() as api:
        await api.create(config("a"))
        events = await read_events(api, 2)
        assert [(type_, found["metadata"]["name"]) for type_, found in events] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]
        assert events[1][1] == await api.get(path("configmaps", "b"))


@pytest.mark.parametrize("version", ["v1", "batch/v1", "apps/v1", "resource.k8s.io/v1", "meta.k8s.io/v1"])
async def test_options_may_name_any_group(version: str) -> None:
    """Typed clients name the group of the object; kube-controller-manager deletes jobs with `batch/v1`."""
    options = {"apiVersion": version, "kind": "DeleteOptions", "propagationPolicy": "Background"}
    async with serving() as api:
        await api.create(config("m"))
        body = kubernetes.encode(options)
        answer = await api.ask("DELETE", path("configmaps", "m"), body, headers=BOTH)
        assert (answer.code, answer.document["status"]) == (200, "Success"), answer.document
