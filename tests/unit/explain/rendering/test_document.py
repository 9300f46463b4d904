"""The JSON document: complete, versioned, plain JSON."""

from __future__ import annotations

import json

import pytest

from dray.explain import render_text, summarize, to_document
from tests.unit.explain.situations import (
    SITUATIONS,
    alternatives_exhausted,
    closest,
    passed_over,
    selector_false,
    unknown_class,
)


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_document_is_plain_json_with_the_same_keys(name):
    diagnosis = SITUATIONS[name]()
    document = to_document(diagnosis)
    assert json.loads(json.dumps(document)) == document
    assert list(document) == [
        "apiVersion",
        "kind",
        "verdict",
        "headline",
        "summary",
        "pod",
        "claims",
        "fault",
        "nodeCount",
        "stories",
        "hints",
    ]
    assert (document["apiVersion"], document["kind"]) == ("explain.dray/v1", "Diagnosis")
    assert document["summary"] == summarize(diagnosis)
    assert " ".join(render_text(diagnosis).partition("\n\n")[0].split()) == document["headline"]


def test_every_node_is_in_one_report():
    document = to_document(closest())
    assert [report["nodes"] for report in document["stories"]] == [
        ["node-a"],
        ["node-c"],
        ["node-b"],
        ["node-d"],
    ]
    assert document["nodeCount"] == 4


def test_every_device_has_its_first_failing_rule():
    attempt = to_document(closest())["stories"][0]["attempts"][0]
    refusals = {entry["device"]["device"]: entry.get("why") for entry in attempt["devices"]}
    assert refusals["gpu-0"] is None
    assert refusals["gpu-2"] == {"reason": "InUse", "holders": ["ml/old"]}
    assert refusals["gpu-5"] == {
        "reason": "ConstraintViolated",
        "name": "gpu.example/numa",
        "value": "1",
        "expected": "0",
        "peers": ["gpu-0", "gpu-1"],
    }
    assert refusals["gpu-7"] == {"reason": "Tainted", "taint": "gpu.example/maintenance:NoSchedule"}
    assert len(refusals) == 8
    assert attempt["tally"] == [
        "3 in use by ml/old and ml/other",
        "2 with numa 1 (constraint: same gpu.example/numa = 0, like gpu-0 and gpu-1)",
        "1 tainted (`gpu.example/maintenance:NoSchedule`)",
    ]


def test_pools_have_their_numbers():
    [flaw] = to_document(closest())["stories"][2]["pools"]
    assert flaw == {
        "driver": "gpu.example",
        "pool": "node-b",
        "pattern": "<node>",
        "reason": "PoolIncomplete",
        "published": 1,
        "expected": 2,
        "generation": 7,
    }


def test_a_selector_has_its_owner_and_the_nearest_device():
    attempt = to_document(selector_false())["stories"][0]["attempts"][0]
    why = attempt["devices"][0]["why"]
    assert (why["owner"], why["ownerKind"]) == ("request gpu", "request")
    assert attempt["nearest"]["device"]["device"] == "gpu-1"
    assert attempt["nearest"]["value"] == "40Gi"


def test_a_fault_has_object_field_and_text():
    document = to_document(unknown_class())
    assert document["verdict"] == "Faulty"
    assert document["fault"] == {
        "claim": "ml/gpus",
        "field": "request `gpu`",
        "text": "device class `gpus` does not exist",
    }


def test_a_found_device_has_the_devices_that_were_passed_over():
    found = to_document(passed_over())["stories"][0]["found"]
    assert [pick["device"]["device"] for pick in found] == ["gpu-2", "gpu-4"]
    reasons = [[entry["why"]["reason"] for entry in pick["passedOver"]] for pick in found]
    assert reasons == [["InUse", "Tainted"], ["InUse"]]


def test_hints_are_sentences_with_their_nodes():
    [first, *_] = to_document(closest())["hints"]
    assert first == {
        "kind": "Tolerate",
        "text": "tolerating `gpu.example/maintenance:NoSchedule`",
        "nodes": ["node-a"],
        "claim": "ml/gpus",
        "request": "gpu",
        "sentence": "tolerating `gpu.example/maintenance:NoSchedule` would make node-a fit",
    }


def test_an_alternative_has_its_parts():
    attempts = to_document(alternatives_exhausted())["stories"][0]["attempts"]
    assert [(one["request"], one["alternativeOf"], one["subrequest"]) for one in attempts] == [
        ("gpu/large", "gpu", "large"),
        ("gpu/small", "gpu", "small"),
    ]
