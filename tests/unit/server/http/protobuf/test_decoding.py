"""Protobuf bodies become the documents that a JSON client would have sent."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.codec import decode_document
from dray.server.http.errors import ApiStatusError
from dray.server.http.protobuf import decode
from dray.wire.kubernetes.decoding import MAX_VALUES
from tests.unit.server.http.protobuf.recorded import WRITTEN_BY_KUBECTL
from tests.unit.server.http.protobuf.writing import body, message, number


@pytest.mark.parametrize(("sent", "meant"), WRITTEN_BY_KUBECTL, ids=lambda case: str(case)[:12])
def test_what_kubectl_writes_is_read(sent, meant):
    assert decode(base64.b64decode(sent)) == meant


def test_a_lease_keeps_its_zeros_and_its_microseconds():
    moment = message((1, 1_800_000_000), (2, 123_456_000))
    spec = message((1, "me"), (2, 15), (3, moment), (4, message((1, 1_800_000_001))), (5, 0))
    sent = body("coordination.k8s.io/v1", "Lease", message((1, message((1, "a"), (7, 0))), (2, spec)))
    assert decode(sent) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2027-01-15T08:00:00.123456Z",
            "renewTime": "2027-01-15T08:00:01.000000Z",
            "leaseTransitions": 0,
        },
    }


def test_an_event_of_each_api_is_read():
    pod = message((1, "Pod"), (2, "ns"), (3, "p"), (4, "u"), (5, "v1"))
    core = message(
        (1, message((1, "e"))), (2, pod), (3, "Why"), (6, message((1, 0), (2, 0))), (8, 3), (10, b"")
    )
    assert decode(body("v1", "Event", core)) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "apiVersion": "v1"},
        "reason": "Why",
        "firstTimestamp": "1970-01-01T00:00:00Z",
        "count": 3,
    }
    series = message((1, 2), (2, message((1, -1))))
    newer = message((1, message((1, "e"))), (3, series), (4, "scheduler"), (8, pod), (10, "note"), (13, b""))
    assert decode(body("events.k8s.io/v1", "Event", newer)) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "series": {"count": 2, "lastObservedTime": "1969-12-31T23:59:59.000000Z"},
        "reportingController": "scheduler",
        "regarding": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "apiVersion": "v1"},
        "note": "note",
    }


def claim() -> bytes:
    """A claim as a scheduler writes it: every kind of field is in it."""
    opaque = message((1, "gpu.example.com"), (2, message((1, b'{"speed":9.50}'))))
    config = message((1, "one"), (2, message((1, opaque))))
    toleration = message((1, "k"), (2, "Exists"), (3, ""), (4, ""), (5, 0))
    amount = message((1, "memory"), (2, message((1, "10Gi"))))
    selector = message((1, message((1, "true"))))
    exactly = message(
        (1, "gpu"),
        (2, selector),
        (3, "ExactCount"),
        (4, 2),
        (5, 0),
        (6, toleration),
        (7, message((1, amount))),
    )
    spec = message((1, message((1, message((1, "one"), (2, exactly))), (3, config))))
    result = message((1, "one"), (2, "gpu.example.com"), (3, "pool"), (4, "gpu-0"), (9, "6f9e"), (10, amount))
    on_node = message((1, message((2, message((1, "metadata.name"), (2, "In"), (3, "node-a"))))))
    allocation = message((1, message((1, result))), (3, on_node), (5, message((1, 1_800_000_000))))
    pod = message((1, ""), (3, "pods"), (4, "p"), (5, "u"))
    condition = message(
        (1, "Ready"), (2, "True"), (3, 4), (4, message((1, 1_800_000_000))), (5, "Ok"), (6, "")
    )
    device = message(
        (1, "gpu.example.com"),
        (2, "pool"),
        (3, "gpu-0"),
        (4, condition),
        (5, message((1, b"[1]"))),
        (7, "6f9e"),
    )
    status = message((1, allocation), (2, pod), (4, device))
    owner = message((1, "Pod"), (3, "p"), (4, "u"), (5, "v1"), (6, 1))
    managed = message((1, "m"), (2, "Update"), (7, message((1, b'{"f:spec":{}}'))))
    label = message((1, "a"), (2, "b"))
    metadata = message(
        (1, "c"),
        (3, "ns"),
        (7, 5),
        (8, message((1, 1_800_000_000))),
        (11, label),
        (13, owner),
        (14, "f"),
        (17, managed),
    )
    return message((1, metadata), (2, spec), (3, status))


CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": "c",
        "namespace": "ns",
        "generation": 5,
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "labels": {"a": "b"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u", "apiVersion": "v1", "controller": True}],
        "finalizers": ["f"],
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "one",
                    "exactly": {
                        "deviceClassName": "gpu",
                        "selectors": [{"cel": {"expression": "true"}}],
                        "allocationMode": "ExactCount",
                        "count": 2,
                        "adminAccess": False,
                        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 0}],
                        "capacity": {"requests": {"memory": "10Gi"}},
                    },
                }
            ],
            "config": [
                {"requests": ["one"], "opaque": {"driver": "gpu.example.com", "parameters": {"speed": 9.5}}}
            ],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "one",
                        "driver": "gpu.example.com",
                        "pool": "pool",
                        "device": "gpu-0",
                        "shareID": "6f9e",
                        "consumedCapacity": {"memory": "10Gi"},
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}
                ]
            },
            "allocationTimestamp": "2027-01-15T08:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "devices": [
            {
                "driver": "gpu.example.com",
                "pool": "pool",
                "device": "gpu-0",
                "shareID": "6f9e",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "observedGeneration": 4,
                        "lastTransitionTime": "2027-01-15T08:00:00Z",
                        "reason": "Ok",
                        "message": "",
                    }
                ],
                "data": [1],
            }
        ],
    },
}


def test_a_claim_with_its_status_is_read_and_is_one():
    document = decode(body("resource.k8s.io/v1", "ResourceClaim", claim()))
    assert document == CLAIM
    assert decode_document(document).unknown_fields == ()


def test_options_of_a_deletion_are_read_in_any_group():
    raw = message((1, 0), (2, message((1, "u"), (2, "130"))), (4, "Background"), (5, "All"))
    assert decode(body("resource.k8s.io/v1", "DeleteOptions", raw)) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "130"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_a_binding_and_a_review_with_extra_are_read():
    binding = message((1, message((1, "p"), (5, "u"))), (2, message((1, "Node"), (3, "n"))))
    assert decode(body("v1", "Binding", binding))["target"] == {"kind": "Node", "name": "n"}
    extra = message((1, "scope"), (2, message((1, "a"), (1, ""))))
    review = message((2, message((3, "jane"), (4, "g"), (5, extra))))
    assert decode(body("authorization.k8s.io/v1", "SubjectAccessReview", review))["spec"] == {
        "user": "jane",
        "groups": ["g"],
        "extra": {"scope": ["a", ""]},
    }


def test_an_entry_of_a_map_may_lack_its_value_or_its_key():
    raw = message((2, message((1, "a"))), (2, message((2, "b"))))
    assert decode(body("v1", "ConfigMap", raw))["data"] == {"a": "", "": "b"}


def test_unknown_fields_are_ignored():
    raw = message((1, message((1, "a"), (99, "later"))), (77, 5))
    fixed = number(20 << 3 | 1) + b"12345678" + number(21 << 3 | 5) + b"1234"
    assert decode(body("v1", "Namespace", raw + fixed))["metadata"] == {"name": "a"}


def test_json_inside_the_envelope_is_json():
    sent = body("v1", "Pod", b'{"kind":"Pod","apiVersion":"v1"}', (4, "application/json"))
    assert decode(sent) == {"kind": "Pod", "apiVersion": "v1"}


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("dray.dev/v1alpha1", "Preparation"), ("v1", "PodSpecs"), ("", ""), ("v2", "Event"), ("core/v1", "Pod")],
)
def test_other_kinds_are_refused_with_what_to_do(api_version, kind):
    with pytest.raises(
        ApiStatusError, match=r"send JSON: .*--kube-api-content-type=application/json"
    ) as refused:
        decode(body(api_version, kind, b""))
    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")


def test_an_unknown_encoding_is_refused():
    with pytest.raises(ApiStatusError) as refused:
        decode(body("v1", "ConfigMap", b"", (3, "gzip")))
    assert refused.value.code == 415


def _many(count: int) -> bytes:
    return body("v1", "Namespace", message((1, message((14, "")) * count)))


BROKEN = {
    "no magic": b"",
    "other magic": b"k8s\x01abc",
    "cut in the envelope": b"k8s\x00\x0a\x05ab",
    "cut in a number": b"k8s\x00\xff",
    "an endless number": b"k8s\x00" + b"\xff" * 40,
    "a huge length": b"k8s\x00\x12" + number(2**63),
    "field zero": b"k8s\x00\x02\x00",
    "a group": b"k8s\x00\x0b\x0c",
    "a number for a text": body("v1", "ConfigMap", message((1, message((1, 5))))),
    "a text for a number": body("v1", "Event", message((8, "x"))),
    "a number for a message": body("v1", "ConfigMap", message((1, 5))),
    "a number for an entry": body("v1", "ConfigMap", message((2, 5))),
    "no UTF-8": body("v1", "ConfigMap", message((1, message((1, b"\xff\xfe"))))),
    "no JSON in parameters": body(
        "v1", "Namespace", message((1, message((17, message((7, message((1, b"{"))))))))
    ),
    "JSON nested without end": body(
        "v1", "Namespace", message((1, message((17, message((7, message((1, b"[" * 100_000))))))))
    ),
    "a time beyond all years": body("v1", "Event", message((6, message((1, 2**62))))),
    "JSON that is no object": body("v1", "Pod", b"[]", (4, "application/json")),
    "too many values": _many(MAX_VALUES + 1),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_bodies_are_a_bad_request(what):
    with pytest.raises(ApiStatusError) as refused:
        decode(BROKEN[what])
    assert refused.value.code == 400


def test_a_large_but_honest_body_is_read():
    assert len(decode(_many(20_000))["metadata"]["finalizers"]) == 20_000


def _outcome(sent: bytes) -> Any:
    try:
        return decode(sent)
    except ApiStatusError as refused:
        return refused.code


def test_no_mutation_of_a_real_body_is_more_than_refused():
    rng = random.Random(5)
    seeds = [base64.b64decode(sent) for sent, _ in WRITTEN_BY_KUBECTL]
    seeds.append(body("resource.k8s.io/v1", "ResourceClaim", claim()))
    outcomes = set()
    for _ in range(6_000):
        sent = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(4, len(sent))
            if rng.random() < 0.3:
                del sent[place : place + rng.randint(1, 9)]
                sent += b"\x00" * (5 - len(sent))
            elif rng.random() < 0.5:
                sent[place] = rng.randrange(256)
            else:
                sent[place:place] = rng.randbytes(rng.randint(1, 5))
        outcome = _outcome(bytes(sent))
        outcomes.add(outcome if isinstance(outcome, int) else 200)
    assert outcomes == {200, 400, 415}


KINDS = [
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("apps/v1", "StatefulSet"),
    ("resource.k8s.io/v1beta1", "ResourceSlice"),
]


@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_no_bytes_in_an_envelope_are_more_than_refused(raw, kind):
    outcome = _outcome(body(*kind, raw))
    assert isinstance(outcome, dict) or outcome == 400
