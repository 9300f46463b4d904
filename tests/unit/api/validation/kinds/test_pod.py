"""Validation of the claims of pods."""

from __future__ import annotations

import pytest

from dray.api.fields import SubrequestReference, UnknownName
from dray.api.kinds import get_kind
from dray.api.validation import validate_changed_document, validate_create, validate_status_update
from tests.unit.api.validation.building import found, made, metadata, pod, pod_document

POD = get_kind("", "Pod")
BY_NAME = {"name": "gpu", "resourceClaimName": "my-claim"}
FROM_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "my-template"}
TEMPLATE = {"spec": {"resourceClassName": "gpu.example.com"}}
INLINE = {"name": "gpu", "template": TEMPLATE}
ENTRY = "spec.resourceClaims[0]"
req = pytest.mark.req


def judged(*entries, **pod_fields):
    return found(validate_create(pod(*entries, **pod_fields)))


@req("K3063-091", "K3063-093")
@pytest.mark.parametrize("entry", [BY_NAME, FROM_TEMPLATE, INLINE])
def test_a_claim_of_a_pod_has_a_name_and_a_source(entry):
    assert judged(entry) == []
    assert judged({**entry, "name": ""}) == [f"Required {ENTRY}.name"]
    assert judged({**entry, "name": "GPU"})[0] == f"Invalid {ENTRY}.name"


@req("K3063-094")
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "gpu"}, [f"Invalid {ENTRY}"]),
        ({**BY_NAME, **INLINE}, [f"Invalid {ENTRY}"]),
        ({**BY_NAME, **FROM_TEMPLATE}, [f"Invalid {ENTRY}"]),
        ({**BY_NAME, **FROM_TEMPLATE, **INLINE}, [f"Invalid {ENTRY}"]),
    ],
)
def test_exactly_one_source(entry, expected):
    assert judged(entry) == expected


@pytest.mark.parametrize("field", ["resourceClaimName", "resourceClaimTemplateName"])
@pytest.mark.parametrize("name", ["", "A", "ns/claim"])
def test_sources_have_names_of_objects(field, name):
    assert judged({"name": "gpu", field: name}) == [f"Invalid {ENTRY}.{field}"]


def test_entries_differ():
    assert judged(BY_NAME, FROM_TEMPLATE) == ["Duplicate spec.resourceClaims[1].name"]


# --- templates inside a pod ---


@req("K3063-097")
@pytest.mark.parametrize(("length", "sound"), [(249, True), (250, False)])
def test_the_name_of_the_claim_to_be_made_must_be_one(length, sound):
    """`<pod>-<entry>` has at most 253 characters; `gpu` and the dash are 4 of them."""
    errors = judged(INLINE, meta=metadata(name="p" * length))
    assert errors == ([] if sound else [f"Invalid {ENTRY}.name"])
    assert judged(BY_NAME, meta=metadata(name="p" * length)) == []


def test_a_pod_without_a_name_yet_is_valid():
    assert judged(INLINE, meta={"namespace": "ns", "generateName": "train-"}) == []


@req("K3063-102")
@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ({"labels": {"a": "b"}, "annotations": {"c": "d"}}, []),
        ({"name": "x"}, [f"Forbidden {ENTRY}.template.metadata.name"]),
        ({"namespace": "x"}, [f"Forbidden {ENTRY}.template.metadata.namespace"]),
        ({"finalizers": ["a/b"]}, [f"Forbidden {ENTRY}.template.metadata.finalizers"]),
        ({"labels": {"a b": ""}}, [f"Invalid {ENTRY}.template.metadata.labels"]),
    ],
)
def test_a_template_holds_labels_and_annotations_only(inner, expected):
    template = {**TEMPLATE, "metadata": inner}
    assert judged({"name": "gpu", "template": template}) == expected


def test_an_inline_template_has_the_rules_of_a_classic_claim():
    spec = {"resourceClassName": "", "allocationMode": "Later"}
    assert judged({"name": "gpu", "template": {"spec": spec}}) == [
        f"NotSupported {ENTRY}.template.spec.allocationMode",
        f"Required {ENTRY}.template.spec.resourceClassName",
    ]


def test_the_first_spelling_of_templates_and_uses():
    entry = {"name": "gpu", "template": {"resourceClassName": "gpu.example.com"}}
    assert judged(entry, uses=["gpu"]) == []


# --- containers ---

USES = {
    "whole claim": ([{"name": "gpu"}], []),
    "one request": ([{"name": "gpu", "request": "big"}], []),
    "several requests": ([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}], []),
    "unknown claim": ([{"name": "nic"}], ["NotFound {}[0]"]),
    "no name": ([{"request": "a"}], ["Required {}[0]"]),
    "twice": ([{"name": "gpu"}, {"name": "gpu"}], ["Duplicate {}[1]"]),
    "one request twice": ([{"name": "gpu", "request": "a"}] * 2, ["Duplicate {}[1]"]),
}


@req("K3063-092")
@pytest.mark.parametrize(("uses", "expected"), USES.values(), ids=USES)
def test_containers_use_claims_of_their_pod(uses, expected):
    place = "spec.containers[0].resources.claims"
    assert judged(BY_NAME, uses=uses) == [line.format(place) for line in expected]


@req("K4816-052")
def test_containers_use_requests_and_not_alternatives():
    place = "spec.containers[0].resources.claims[0].request"
    assert judged(BY_NAME, uses=[{"name": "gpu", "request": "gpu/big"}]) == [f"Invalid {place}"]
    assert judged(BY_NAME, uses=[{"name": "gpu", "request": "gpu"}]) == []


@pytest.mark.parametrize(
    ("name", "violations"),
    [
        ("gpu/big", [SubrequestReference("gpu")]),
        ("GPU", [None]),
        (f"gpu/{'x' * 60}", [SubrequestReference("gpu")] * 2),
    ],
)
def test_the_error_about_an_alternative_names_its_request(name, violations):
    errors = validate_create(pod(BY_NAME, uses=[{"name": "gpu", "request": name}]))
    assert [error.violation for error in errors] == violations


@pytest.mark.parametrize("containers", ["initContainers", "ephemeralContainers"])
def test_all_lists_of_containers_are_checked(containers):
    odd = {"name": "other", "resources": {"claims": [{"name": "nic"}]}}
    assert judged(BY_NAME, spec={containers: [odd]}) == [f"NotFound spec.{containers}[0].resources.claims[0]"]


def test_a_pod_without_claims():
    assert judged() == []
    assert judged(uses=[{"name": "gpu"}]) == ["NotFound spec.containers[0].resources.claims[0]"]


def test_the_message_names_what_there_is():
    (error,) = validate_create(pod(BY_NAME, {**BY_NAME, "name": "nic"}, uses=[{"name": "disk"}]))
    assert error.detail == "must be one of the names in pod.spec.resourceClaims: `gpu`, `nic`"
    assert error.violation == UnknownName(("gpu", "nic"))


# --- updates ---


def test_claims_of_a_pod_never_change():
    old = pod_document(BY_NAME, uses=[{"name": "gpu"}])
    labelled = pod_document(BY_NAME, uses=[{"name": "gpu"}], meta=metadata(labels={"a": "b"}))
    assert not validate_changed_document(POD, labelled, old)
    for new in (
        pod_document({**BY_NAME, "resourceClaimName": "other"}, uses=[{"name": "gpu"}]),
        pod_document(BY_NAME, FROM_TEMPLATE, uses=[{"name": "gpu"}]),
        pod_document(BY_NAME),
    ):
        assert found(validate_changed_document(POD, new, old)) == ["Forbidden spec"]


def test_a_mirror_pod_has_no_claims():
    """It has no path: the pod as a whole is refused."""
    mirror = metadata(annotations={"kubernetes.io/config.mirror": "x"})
    assert judged(BY_NAME, meta=mirror) == ["Forbidden "]


STATUSES = {
    "made": ([{"name": "gpu", "resourceClaimName": "train-gpu-x7"}], []),
    "none was needed": ([{"name": "gpu"}], []),
    "for no entry": ([{"name": "nic"}], ["Invalid {}[0].name"]),
    "twice": ([{"name": "gpu"}, {"name": "gpu"}], ["Duplicate {}[1].name"]),
    "bad name": ([{"name": "gpu", "resourceClaimName": "A"}], ["Invalid {}[0].resourceClaimName"]),
}


@pytest.mark.parametrize(("statuses", "expected"), STATUSES.values(), ids=STATUSES)
def test_claims_that_were_made(statuses, expected):
    new = pod(FROM_TEMPLATE, status={"resourceClaimStatuses": statuses})
    errors = found(validate_status_update(new, pod(FROM_TEMPLATE)))
    assert errors == [line.format("status.resourceClaimStatuses") for line in expected]


def test_the_rest_of_a_pod_is_not_validated_with_its_struct():
    """What-if files need no images; a server validates the document, too."""
    odd = {"containers": [{"name": "NOT A NAME", "image": 7}], "restartPolicy": "Perhaps"}
    assert not validate_create(made({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(), "spec": odd}))
