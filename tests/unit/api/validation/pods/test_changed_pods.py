"""Changes of pods that were stored before the rules: they are excused for what they had."""

from __future__ import annotations

import pytest

from dray.api.kinds import get_kind
from dray.api.validation import validate_changed_document
from tests.unit.api.validation.building import found
from tests.unit.api.validation.pods.pod_cases import build_pod

POD = get_kind("", "Pod")
OLD = build_pod(
    spec={"nodeSelector": {"a b": "c"}, "schedulingGates": [{"name": "a"}]},
    container={"image": "", "ports": [{"name": "UPPER", "containerPort": 0}]},
)


def judged(new, old, subresource=""):
    return found(validate_changed_document(POD, new, old, subresource))


def change(**spec):
    return {**OLD, "spec": {**OLD["spec"], **spec}}


def test_a_stored_pod_that_is_invalid_can_change_what_may_change():
    labelled = {**OLD, "metadata": {**OLD["metadata"], "labels": {"a": "b"}}}
    assert judged(labelled, OLD) == []
    assert judged(change(schedulingGates=[]), OLD) == []
    assert judged(change(activeDeadlineSeconds=5), OLD) == []
    assert judged({**OLD, "status": {"phase": "Running"}}, OLD, "status") == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"activeDeadlineSeconds": -1}, "Invalid spec.activeDeadlineSeconds"),
        ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "Invalid spec.tolerations[0].key"),
        ({"nodeSelector": {"a b": "c", "d e": "f"}}, "Invalid spec.nodeSelector"),
    ],
)
def test_a_stored_pod_that_is_invalid_gets_no_further_errors(spec, expected):
    assert expected in judged(change(**spec), OLD)


@pytest.mark.parametrize(
    ("new", "old", "same"),
    [
        ({"hostNetwork": False}, {}, True),
        ({"hostUsers": False}, {}, False),
        ({"overhead": {"cpu": "1"}}, {"overhead": {"cpu": "1000m"}}, True),
        ({"overhead": {"cpu": "1"}}, {"overhead": {"cpu": "1001m"}}, False),
        ({"imagePullSecrets": []}, {}, True),
        ({"hostname": ""}, {}, True),
        ({"runtimeClassName": "a"}, {}, False),
        ({"securityContext": {"runAsUser": 0}}, {"securityContext": {}}, False),
    ],
)
def test_a_field_that_means_the_same_is_no_change(new, old, same):
    assert judged(build_pod(spec=new), build_pod(spec=old)) == ([] if same else ["Forbidden spec"])


def test_the_error_names_the_fields_that_may_not_change():
    (error,) = validate_changed_document(
        POD, build_pod(spec={"hostname": "a", "subdomain": "b"}), build_pod()
    )
    assert error.detail.endswith("this one changes `hostname`, `subdomain`")
