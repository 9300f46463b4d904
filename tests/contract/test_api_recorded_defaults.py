"""Objects of every kind are stored as kube-apiserver 1.37 stores them, but for the differences named here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.api.kinds import parse_document_kind
from tests.contract.api import APPLY, path, serving
from tests.contract.recorded_defaults import (
    SETS,
    DefaultsCase,
    Document,
    drop_volatile_fields,
    read_answers,
    read_cases,
)

COMPUTED_ON_CREATE = (
    "Pod/pod-limits",
    "Pod/pod-limits-only",
    "Pod/pod-requests-init",
    "Pod/pod-hugepages",
    "Pod/spread",
    "Job/smallest",
    "Job/labelled",
    "Job/indexed",
)
"""Objects that get immutable fields on create, so that writing them without is refused, as in Kubernetes."""


def _ignore(document: Document, *names: str) -> None:
    """Remove the field that the names lead to."""
    *holders, last = names
    for name in holders:
        document = document.get(name) or {}
    document.pop(last, None)


def _ignore_addresses(service: Document) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        _ignore(service, "spec", name)
    if service["spec"].get("clusterIP") != "None":
        _ignore(service, "spec", "clusterIP")


def _ignore_service_account(pod: Document) -> None:
    if pod["spec"].get("serviceAccountName") == "default":
        _ignore(pod, "spec", "serviceAccountName")
        _ignore(pod, "spec", "serviceAccount")


def _ignore_selectors(configuration: Document) -> None:
    for webhook in configuration["webhooks"]:
        for name in ("namespaceSelector", "objectSelector"):
            if not webhook.get(name):
                webhook.pop(name, None)


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(item) for name, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


def _ignore_condition_times(pod: Document) -> None:
    for condition in pod["status"].get("conditions", ()):
        condition.pop("lastTransitionTime", None)


DECIDED: dict[str, tuple[str, Callable[[Document], None]]] = {
    "no service addresses are allocated": ("Service", _ignore_addresses),
    "pods run as a service account, which the recorded server did not add": ("Pod", _ignore_service_account),
    "conditions of a new pod have no time": ("Pod", _ignore_condition_times),
    "a new node has no taint that only a controller removes": (
        "Node",
        lambda node: _ignore(node, "spec", "taints"),
    ),
    "no finalizer that only a controller removes: volumes": (
        "PersistentVolume",
        lambda volume: _ignore(volume, "metadata", "finalizers"),
    ),
    "no finalizer that only a controller removes: claims": (
        "PersistentVolumeClaim",
        lambda claim: _ignore(claim, "metadata", "finalizers"),
    ),
    "no finalizer that only a controller removes: classes": (
        "VolumeAttributesClass",
        lambda attributes: _ignore(attributes, "metadata", "finalizers"),
    ),
    "the phase of a volume has no time": (
        "PersistentVolume",
        lambda volume: _ignore(volume, "status", "lastPhaseTransitionTime"),
    ),
    "definitions of custom resources are stored, not served": (
        "CustomResourceDefinition",
        lambda definition: _ignore(definition, "status", "acceptedNames"),
    ),
    "a CSI node has no status": ("CSINode", lambda node: _ignore(node, "status")),
    "an empty selector of a validating webhook is left out": (
        "ValidatingWebhookConfiguration",
        _ignore_selectors,
    ),
    "an empty selector of a mutating webhook is left out": (
        "MutatingWebhookConfiguration",
        _ignore_selectors,
    ),
}
"""The differences to Kubernetes: what dray does, the kind, and what to leave out of both documents."""


def compare(kind: str, answer: Document) -> Document:
    """A stored object without decided differences and without nulls."""
    compared: Document = drop_volatile_fields(answer)
    for about_kind, leave_out in DECIDED.values():
        if about_kind == kind:
            leave_out(compared)
    return dict(_drop_nulls(compared))


def find_home(case: DefaultsCase) -> str:
    kind, version = parse_document_kind(case.given)
    namespace = "default" if kind.namespaced else ""
    return path(kind.plural, namespace=namespace, version=version, group=kind.group)


@pytest.mark.parametrize("name", SETS)
async def test_objects_are_stored_as_kubernetes_stores_them(name: str) -> None:
    answers = read_answers(name)
    async with serving() as api:
        for case in read_cases(name):
            kind, created = case.given["kind"], await api.create(case.given, find_home(case))
            assert compare(kind, created) == compare(kind, answers[case.id]), case.id


@pytest.mark.parametrize("name", SETS)
async def test_replacing_an_object_by_itself_writes_nothing(name: str) -> None:
    async with serving() as api:
        for case in read_cases(name):
            where = find_home(case)
            created = await api.create(case.given, where)
            again = {**case.given, "metadata": {**created["metadata"], **case.given["metadata"]}}
            answer = await api.ask("PUT", f"{where}/{created['metadata']['name']}", again)
            if case.id in COMPUTED_ON_CREATE:
                assert (answer.code, answer.reason) == (422, "Invalid"), case.id
            else:
                assert answer.document == created, case.id


@pytest.mark.parametrize("name", SETS)
async def test_applying_an_object_twice_writes_once(name: str) -> None:
    async with serving() as api:
        for case in read_cases(name):
            where = f"{find_home(case)}/{case.given['metadata']['name']}"
            first = await api.patch(where, case.given, APPLY, fieldManager="me")
            if case.id != "Pod/spread":  # its selectors are replaced as a whole, which is refused
                assert await api.patch(where, case.given, APPLY, fieldManager="me") == first, case.id


def test_every_decided_difference_is_needed() -> None:
    answers = [answer for name in SETS for answer in read_answers(name).values()]
    for about, (kind, leave_out) in DECIDED.items():
        if about.startswith("pods run as"):
            continue  # what dray adds is in no recording
        assert any(_changes(leave_out, answer) for answer in answers if answer["kind"] == kind), about


def _changes(leave_out: Callable[[Document], None], answer: Document) -> bool:
    changed = drop_volatile_fields({**answer, "metadata": {**answer["metadata"], "uid": ""}})
    before = drop_volatile_fields(changed)
    leave_out(changed)
    return changed != before
