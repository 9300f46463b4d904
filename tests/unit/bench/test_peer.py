"""The peer of the scheduler benchmark: chunked answers, leftovers, and refusals on one line."""

from __future__ import annotations

import asyncio
import json

import pytest

from bench.lean import ChunkDecoder, Wire, packed
from bench.scheduler import __main__ as program
from bench.scheduler import objects
from bench.scheduler.load import PodTimes, Sender
from bench.scheduler.peer import NAMES, describe_leftovers, list_leftovers, select_leftovers
from bench.scheduler.workloads import LARGE, WORKLOADS

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def encode_chunks(content, size):
    pieces = [content[begin : begin + size] for begin in range(0, len(content), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def list_names(names):
    return [{"metadata": {"name": name}} for name in names]


class FakeSender(Sender):
    """Answers lists from a table."""

    def __init__(self, names):
        super().__init__([])
        self._names = names

    async def send(self, method, path, document=b""):
        assert method == "GET"
        return json.dumps({"items": list_names(self._names.get(path, ()))}).encode()


@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 1000])
def test_chunks_are_joined_whatever_the_pieces_in_which_they_arrive(chunk, piece):
    content = b"".join(b'{"number":%d}\r\n0\r\n' % number for number in range(20))
    coded = encode_chunks(content, chunk)
    decoder = ChunkDecoder()
    found = b"".join(decoder.feed(coded[begin : begin + piece]) for begin in range(0, len(coded), piece))
    assert (found, decoder.is_finished) == (content, True)


@pytest.mark.parametrize("piece", [1, 4, 1000])
def test_a_connection_reads_chunked_answers_and_those_with_a_length(piece):
    answers = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + encode_chunks(b"first", 2),
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecond",
    )

    class Transport(asyncio.Transport):
        def __init__(self, wire, answer):
            super().__init__()
            self._wire, self._answer = wire, answer

        def write(self, request):
            for begin in range(0, len(self._answer), piece):
                data = self._answer[begin : begin + piece]
                asyncio.get_running_loop().call_soon(self._wire.data_received, data)

    async def call():
        wire, found = Wire(), []
        for answer in answers:
            wire.connection_made(Transport(wire, answer))
            found.append(await wire.call(b""))
        return found

    assert asyncio.run(call()) == [(200, b"first"), (404, b"second")]


@pytest.mark.parametrize("piece", [1, 9, 1000])
def test_pods_are_seen_as_bound_also_when_a_chunk_ends_within_a_line(piece):
    def write_event(kind, name, **spec):
        event = {"type": kind, "object": {"metadata": {"name": name, "namespace": "test"}, "spec": spec}}
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"

    events = (
        write_event("ADDED", "a") + write_event("MODIFIED", "a", nodeName="n") + write_event("ADDED", "b")
    )
    coded = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + encode_chunks(events, 10)
    seen = PodTimes()
    for begin in range(0, len(coded), piece):
        seen.take(coded[begin : begin + piece])
    assert list(seen.bound) == ["test/a"]


def test_a_request_carries_the_header_lines_of_the_address():
    request = packed("GET", "/x", headers="authorization: Bearer t\r\n")
    assert request.endswith(b"\r\nauthorization: Bearer t\r\n\r\n")


@pytest.mark.parametrize("workload", [*WORKLOADS, LARGE], ids=lambda workload: workload.name)
def test_all_objects_of_every_workload_are_recognised(workload):
    last = workload.nodes - 1
    made = {
        "/api/v1/namespaces": [objects.namespace(objects.NAMESPACE), objects.namespace(objects.BEFORE)],
        "/api/v1/nodes": [objects.node(0), objects.node(last)],
        SLICES: [*workload.slices(0), *workload.slices(last)],
        CLASSES: [objects.device_class(name, "true") for name in (objects.CLASS, objects.NO_CLASS)],
    }
    assert made.keys() == NAMES.keys()
    for path, documents in made.items():
        expected = [f"{path}/{document['metadata']['name']}" for document in documents]
        assert select_leftovers(path, documents) == expected


def test_objects_of_others_are_left_alone():
    others = {
        "/api/v1/namespaces": ["default", "test-2", "my-test", "init1"],
        "/api/v1/nodes": ["scheduler-perf-dra", "scheduler-perf-dra-a", "x-scheduler-perf-dra-1"],
        SLICES: ["resourceslice-a", "resourceslice-devices-", "node-resourceslice-1"],
        CLASSES: ["test-class-2", "gpu"],
    }
    assert asyncio.run(list_leftovers(FakeSender(others))) == []


def test_leftovers_of_all_kinds_are_listed():
    present = {"/api/v1/nodes": ["a", "scheduler-perf-dra-7"], CLASSES: ["test-class"]}
    found = asyncio.run(list_leftovers(FakeSender(present)))
    assert found == ["/api/v1/nodes/scheduler-perf-dra-7", f"{CLASSES}/test-class"]


def test_the_message_names_a_few_leftovers_and_counts_the_others():
    paths = [f"/api/v1/nodes/scheduler-perf-dra-{number}" for number in range(5)]
    shown = "`nodes/scheduler-perf-dra-0`, `nodes/scheduler-perf-dra-1`, `nodes/scheduler-perf-dra-2`"
    assert describe_leftovers(paths[:3]) == shown
    assert describe_leftovers(paths) == f"{shown} and 2 more"


def test_a_missing_kubeconfig_is_told_on_one_line(tmp_path, capsys):
    missing = tmp_path / "none"
    assert program.main(["--peer", str(missing), "half_500nodes"]) == 1
    expected = f"bench.scheduler: cannot read the kubeconfig `{missing}`: No such file or directory\n"
    assert capsys.readouterr() == ("", expected)
