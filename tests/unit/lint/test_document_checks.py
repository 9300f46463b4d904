"""Checks of one document: findings, facts and counts."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.fields import (
    AboveMaximum,
    BelowMinimum,
    FieldError,
    FieldErrorType,
    MalformedQuantity,
    OffGrid,
    SubrequestReference,
    TypeMismatch,
    UnknownName,
    Violation,
)
from dray.api.strategies import create
from dray.gates import GATES, GateSet
from dray.lint import InspectionResult, crosscheck, inspect_document, resolve_deferred
from dray.manifests import ManifestDocument, ManifestReadError, ManifestSource, read_documents, to_json
from tests.outside import ROOT

NOW = "2026-01-01T00:00:00Z"
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))


def inspect(text: str, gates: GateSet | None = None) -> list[InspectionResult]:
    source = ManifestSource.decode("f.yaml", text.encode())
    return [
        inspect_document(document, gates or GateSet.from_defaults(), now=NOW)
        for document in read_documents(source)
    ]


def test_objects_are_counted_without_those_that_are_not_checked() -> None:
    (inspected,) = inspect(
        "kind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap}\n- {apiVersion: v1, kind: Node}\n"
    )
    assert inspected.objects == 1


def test_facts_are_small_and_name_their_object() -> None:
    text = """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: c}
spec: {devices: {requests: [{name: gpu, deviceClassName: big}]}}
"""
    (inspected,) = inspect(text)
    (facts,) = inspected.facts
    assert (facts.group, facts.kind, facts.namespace, facts.name) == (
        "resource.k8s.io",
        "ResourceClaim",
        "default",
        "c",
    )
    assert facts.requests == ("gpu",)
    assert [(use.path, use.name) for use in facts.device_classes] == [
        ("spec.devices.requests[0].deviceClassName", "big")
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_documents_are_never_changed(path: Path) -> None:
    documents: list[ManifestDocument] = []
    with contextlib.suppress(
        ManifestReadError
    ):  # some examples are broken on purpose; what is before the fault counts
        documents += read_documents(ManifestSource.decode(path.name, path.read_bytes()))
    before = copy.deepcopy([document.value for document in documents])
    for document in documents:
        inspect_document(document, GateSet.from_defaults(), now=NOW)
    assert [document.value for document in documents] == before


def test_a_finding_in_a_deleted_file_stays_a_finding() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: a}\n"
    facts = [fact for inspected in inspect(f"{text}---\n{text}") for fact in inspected.facts]
    (finding,) = resolve_deferred(crosscheck(facts), lambda _name: iter(()))
    assert (finding.rule, finding.line, finding.column) == ("duplicate-object", 1, 1)


@pytest.mark.parametrize("gate", [name for name in GATES if name != "DynamicResourceAllocation"])
def test_a_gate_that_is_off_is_named_by_every_finding_it_causes_in_the_examples(gate: str) -> None:
    """With a gate off, sound manifests lose fields, are refused for what they lost, or are not served."""
    needing = [row.name for row in GATES.values() if gate in row.requires]
    gates = GateSet.from_defaults().override(dict.fromkeys([gate, *needing], False))
    seen = set()
    for path in (ROOT / "examples/gpu-cluster").glob("*.yaml"):
        for inspected in inspect(path.read_text("utf-8"), gates):
            for finding in inspected.findings:
                seen.add(finding.rule)
                if finding.rule in ("field-dropped", "gate-off"):
                    assert any(f"`{name}` is off" in finding.message for name in [gate, *needing])
    assert not seen or seen & {"field-dropped", "gate-off"}


VIOLATIONS = {
    TypeMismatch("a string", "a number"): ("which is a number", "a string", "quote it"),
    MalformedQuantity("no such suffix", "write `Gi`"): ("no such suffix", "a quantity", "write `Gi`"),
    UnknownName(("ExactCount", "All")): ("", "", "did you mean `All`?"),
    AboveMaximum("8Gi"): ("", "at most 8Gi", ""),
    BelowMinimum("1Gi"): ("", "at least 1Gi", ""),
    OffGrid("1Gi", "2Gi"): ("", "1Gi plus a multiple of 2Gi", ""),
    SubrequestReference("gpu"): ("names an alternative", "`gpu`", ""),
}


@pytest.mark.parametrize("violation", VIOLATIONS, ids=lambda one: type(one).__name__)
def test_a_violation_is_reported_whatever_its_text(
    violation: Violation, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = FieldError(FieldErrorType.INVALID, "metadata.name", "Al", "some other words", violation)
    monkeypatch.setattr(create, "validate_stored", lambda obj: [error])
    (inspected,) = inspect("apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: a}\n")
    (finding,) = inspected.findings
    message, expected, hint = VIOLATIONS[violation]
    assert message in finding.message
    assert expected in finding.expected
    assert hint in finding.hint


def test_every_violation_is_covered() -> None:
    assert {type(violation) for violation in VIOLATIONS} == set(get_args(Violation))


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(['device.driver == "d"', "device.attributes['d'].a", "device.", "true"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "name",
                    "spec",
                    "devices",
                    "requests",
                    "exactly",
                    "firstAvailable",
                    "constraints",
                    "matchAttribute",
                    "source",
                    "template",
                    "containers",
                    "resources",
                    "claims",
                    "resourceClaims",
                    "resourceClassName",
                    "basic",
                    "pool",
                    "attributes",
                    "capacity",
                    "status",
                    "items",
                    "selectors",
                    "cel",
                    "expression",
                    "deviceClassName",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
VERSIONS = ["resource.k8s.io/v1", "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha2", "v1", "apps/v1"]
NAMES = [
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceSlice",
    "DeviceClass",
    "Pod",
    "Deployment",
    "List",
]


@given(
    st.sampled_from(VERSIONS),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["spec", "metadata", "status", "items"]), plain),
)
def test_no_document_raises_an_error(version: str, name: str, rest: dict[str, Any]) -> None:
    text = to_json([{"apiVersion": version, "kind": name, **rest}])
    for inspected in inspect(text):
        deferred = crosscheck(inspected.facts, complete=True)
        findings = [
            *inspected.findings,
            *resolve_deferred(deferred, lambda _name: read_documents(ManifestSource("f.yaml", text))),
        ]
        for finding in findings:
            assert finding.line >= 1
            assert finding.column >= 1
            assert finding.message
