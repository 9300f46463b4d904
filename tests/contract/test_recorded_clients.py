"""What Kubernetes' own programs wrote, byte by byte: accepted, and read back as kube-apiserver answered it.

The requests are of kube-scheduler, kube-controller-manager, kubelet and a driver with Kubernetes' library;
`tests/kubernetes/record_clients.py` recorded them, `reduce_recording` chose them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from dray.wire import kubernetes
from dray.wire.kubernetes.decoding import PROTOBUF
from tests.contract.api import Api, ServerResponse
from tests.contract.recorded_writes import RecordedWrite, load_writes, serving_as_then

WRITES = load_writes()
IN_PROTOBUF = [write for write in WRITES if write.is_protobuf]
_OWN = ("resourceVersion", "managedFields")
_AT_CREATION = ("uid", "creationTimestamp", "generation")
_REVIEWS = ("TokenReview", "SubjectAccessReview")


class FieldDifference(NamedTuple):
    """A field in which the answers differ; None stands for a field that is not there."""

    path: str
    ours: Any
    theirs: Any


def _is_empty(value: Any) -> bool:
    return all(map(_is_empty, value.values())) if isinstance(value, dict) else not value


DECIDED: dict[str, Callable[[RecordedWrite, FieldDifference], bool]] = {
    "dray leaves out a field that has no content": lambda write, each: (
        each.ours is None and _is_empty(each.theirs)
    ),
    "a time is that of the write": lambda write, each: (
        each.path
        in (
            ".metadata.deletionTimestamp",
            ".metadata.deletionGracePeriodSeconds",
            ".status.lastPhaseTransitionTime",
        )
    ),
    "the last write to a deleted object is answered with its last stored state": lambda write, each: (
        write.deletes and each.path in (".metadata.finalizers", ".spec.finalizers")
    ),
    "a job is selected by its uid, which each server chooses": lambda write, each: (
        write.kind == "jobs" and each.path.endswith("controller-uid")
    ),
    "the recorded server ran without admission of service accounts": lambda write, each: (
        each.path in (".spec.serviceAccount", ".spec.serviceAccountName")
    ),
    "dray does not taint new nodes: no controller of its own would remove that": lambda write, each: (
        each.path == ".spec.taints" and write.line["path"].endswith("/nodes")
    ),
}
"""Differences that are decided, with the reason."""


@pytest.mark.parametrize("write", IN_PROTOBUF, ids=lambda write: write.name)
def test_recorded_bytes_mean_the_same_when_they_are_encoded_again(write: RecordedWrite) -> None:
    document = kubernetes.decode(write.body)
    assert kubernetes.decode(kubernetes.encode(document)) == document


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
async def test_a_recorded_write_is_accepted_and_read_back_equal(write: RecordedWrite) -> None:
    async with serving_as_then(write) as api:
        answer = await write.send(api)
        assert answer.code == write.line["code"], answer.document
        expected = write.answer
        if expected is None or expected["kind"] == "Status":
            return
        if expected["kind"] in _REVIEWS:
            check_review(answer.document, expected)
            return
        created = write.before is None or write.is_alias
        ours, theirs = (drop_empty(strip(each, created)) for each in (answer.document, expected))
        found = list(find_differences(ours, theirs))
        assert [each for each in found if not any(rule(write, each) for rule in DECIDED.values())] == []
        if write.line["method"] != "DELETE" and not write.deletes:
            await check_read_back(api, write, answer)


async def check_read_back(api: Api, write: RecordedWrite, answer: ServerResponse) -> None:
    """The stored object is the same in both content types, and is what the write was answered with."""
    where = write.object_path or f"{write.line['path']}/{answer.document['metadata']['name']}"
    in_json = await api.get(where)
    in_protobuf = await api.ask("GET", where, headers={"accept": PROTOBUF})
    assert drop_empty(in_protobuf.document) == drop_empty(in_json) == drop_empty(answer.document)
    assert drop_empty(kubernetes.decode(kubernetes.encode(in_json))) == drop_empty(in_json)


def drop_empty(value: Any) -> Any:
    """Leave out fields that say nothing: protobuf has no null, and no list without entries."""
    if isinstance(value, dict):
        kept = {name: drop_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None and each != []}
    return [drop_empty(each) for each in value] if isinstance(value, list) else value


def check_review(found: Any, expected: Any) -> None:
    """A review has the same verdict; the reason is in the words of the server."""
    for verdict in ("authenticated", "allowed"):
        assert bool(found["status"].get(verdict)) == bool(expected["status"].get(verdict))


def find_differences(ours: Any, theirs: Any, path: str = "") -> Iterator[FieldDifference]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            yield from find_differences(ours.get(name), theirs.get(name), f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from find_differences(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield FieldDifference(path, ours, theirs)


def strip(document: Any, created: bool) -> Any:
    """Leave out what each server decides by itself."""
    fields = (*_OWN, *_AT_CREATION) if created else _OWN
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name not in fields}
    if created and "generateName" in metadata:
        del metadata["name"]
    return {**document, "metadata": metadata}


def test_every_program_is_on_record_with_what_it_writes() -> None:
    """The recording is worth nothing when a later one lacks a program or a kind."""
    agents = Counter(write.line["agent"].split("/")[0] for write in WRITES)
    assert agents.keys() == {"kube-scheduler", "kube-controller-manager", "kubelet", "dra-test-driver"}
    written = {write.kind for write in WRITES}
    assert written >= {
        *("pods", "pods/binding", "pods/status", "nodes", "nodes/status", "events", "leases", "csinodes"),
        *("resourceslices", "resourceclaims", "resourceclaims/status", "devicetaintrules/status"),
        *("deployments/status", "replicasets", "replicasets/status", "statefulsets/status", "jobs"),
        *("daemonsets/status", "jobs/status", "cronjobs/status", "controllerrevisions", "endpoints"),
        *("endpointslices", "serviceaccounts", "serviceaccounts/token", "configmaps", "tokenreviews"),
        *("subjectaccessreviews", "resourcequotas/status", "poddisruptionbudgets/status", "clusterroles"),
        *("horizontalpodautoscalers/status", "persistentvolumes", "persistentvolumeclaims/status"),
        *("namespaces/status", "namespaces/finalize", "validatingadmissionpolicies/status"),
    }
