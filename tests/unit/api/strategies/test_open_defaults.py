"""The tables of defaults of open kinds, row by row, and the walk that applies them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from dray.api.kinds import find_kind, get_kind, parse_document_kind
from dray.api.messages.field_tables import INLINE, LIST
from dray.api.strategies.open_defaults import (
    OPEN_DEFAULTS,
    DefaultsRow,
    DocumentDefault,
    apply_open_defaults,
)
from dray.api.strategies.open_defaults.pods import choose_pull_policy
from dray.wire.kubernetes.message_tables import (
    MessageType,
    find_message,
    find_root_message,
    has_message,
)
from tests.contract.recorded_defaults import SETS, read_cases

KINDS = sorted(OPEN_DEFAULTS)
POD = get_kind("", "Pod")
WITHOUT_MESSAGE = (
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
)
"""Kinds whose fields are in no table; the recorded answers have them."""


def list_fields(row: DefaultsRow) -> list[str]:
    if isinstance(row, DocumentDefault):
        return [row.field]
    return [f"{row.holder}.{field}" if row.holder else field for field in row.fields]


def find_field(message: MessageType, name: str) -> tuple[MessageType, str, str] | None:
    """The holder, type and modifier of a field, also of one that is inlined."""
    for field in message.fields.values():
        if field.modifier == INLINE:
            found = find_field(find_message(field.type, message.file), name)
            if found is not None:
                return found
        elif field.name == name:
            return message, field.type, field.modifier
    return None


def walk(message: MessageType, steps: list[str]) -> Iterator[str]:
    """What is wrong with a pattern."""
    name = steps[0].removesuffix("[]")
    found = find_field(message, name)
    if found is None:
        if name in ("apiVersion", "kind"):  # of an object inside another one, not part of its message
            return
        yield f"{message.name} has no field {name}"
        return
    holder, field_type, modifier = found
    if (modifier == LIST) != steps[0].endswith("[]") and len(steps) > 1:
        yield f"{name} of {message.name} is a list, or is none"
    if len(steps) > 1:
        yield from walk(find_message(field_type, holder.file), steps[1:])


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_rows_name_fields_that_kubernetes_has(kind: tuple[str, str]) -> None:
    row = find_kind(*kind)
    assert row is not None
    assert row.open, "defaults of closed kinds are in another table"
    assert all(each.about for each in OPEN_DEFAULTS[kind])
    if not has_message(row.internal_api_version, row.name):
        assert kind in WITHOUT_MESSAGE
        return
    message = find_root_message(row.internal_api_version, row.name)
    fields = [field for each in OPEN_DEFAULTS[kind] for field in list_fields(each)]
    assert [problem for field in fields for problem in walk(message, field.split("."))] == []


@pytest.mark.parametrize("name", SETS)
def test_a_complete_document_is_returned_as_it_is(name: str) -> None:
    for case in read_cases(name):
        kind, _ = parse_document_kind(case.given)
        given = copy.deepcopy(case.given)
        complete = apply_open_defaults(kind, case.given)
        assert apply_open_defaults(kind, complete) is complete, case.id
        assert case.given == given, "the input was changed"


def test_two_documents_share_no_default() -> None:
    given: dict[str, Any] = {"spec": {"containers": [{}]}}
    one, two = apply_open_defaults(POD, given), apply_open_defaults(POD, given)
    assert one == two
    assert one["spec"]["securityContext"] is not two["spec"]["securityContext"]
    assert one["spec"]["containers"][0]["resources"] is not two["spec"]["containers"][0]["resources"]


def test_parts_that_the_stored_object_shares_are_skipped() -> None:
    stored: dict[str, Any] = {"spec": {"containers": []}, "status": {}}
    new = {**stored, "status": {"podIP": "10.0.0.1"}}
    assert apply_open_defaults(POD, new, stored) == {
        "spec": {"containers": []},
        "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    }


@pytest.mark.parametrize(
    "spec",
    [
        "text",
        [1],
        {"containers": "none"},
        {"containers": ["a", None, 3]},
        {"containers": [{"ports": {"a": 1}, "resources": "much", "livenessProbe": 7, "env": [None]}]},
        {"volumes": [{"name": "v", "projected": {"sources": 1}}], "hostNetwork": True, "initContainers": {}},
        {"terminationGracePeriodSeconds": "-1", "serviceAccountName": 3},
    ],
    ids=str,
)
def test_values_of_wrong_types_are_left_for_the_decoder(spec: object) -> None:
    complete = apply_open_defaults(POD, {"spec": spec})
    assert apply_open_defaults(POD, complete) is complete


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/app", "Always"),
        ("host:5000/team/app:2", "IfNotPresent"),
        ("[fd00::1]:5000/app", "Always"),
        (f"app@sha256:{'0' * 64}", "IfNotPresent"),
        (f"app:latest@sha256:{'0' * 64}", "Always"),
        ("App", "IfNotPresent"),
        ("0" * 64, "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert choose_pull_policy(image) == policy


def test_the_first_address_of_a_pod_and_its_only_one_agree() -> None:
    def fill(**status: object) -> object:
        return apply_open_defaults(POD, {"status": status})["status"]

    assert fill(podIP="10.0.0.1") == {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
    assert fill(podIPs=[{"ip": "10.0.0.1"}]) == {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
    assert fill(podIP="a", podIPs=[{"ip": "b"}]) == {"podIP": "a", "podIPs": [{"ip": "a"}]}
    assert fill() == {}
