"""Selectors checked against slices: which findings, where, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.lint import crosscheck
from dray.lint.findings import DeferredFinding, ObjectLocation
from dray.lint.object_facts import ObjectFacts, SelectorGroup, SelectorUse
from dray.lint.selectors import device_models, evaluation
from dray.lint.selectors.evaluation import evaluate_selector
from dray.lint.selectors.guards import add_guards, find_missing_reference
from tests.unit.lint import devices
from tests.unit.lint.devices import DRIVER, GPU, object_facts, published
from tests.unit.lint.selectors.test_evaluation import selectors

NIC = "nic.example.com"


def facts(kind: str, name: str, *groups: SelectorGroup) -> ObjectFacts:
    return ObjectFacts(
        ObjectLocation("f.yaml", 0, "", f"{kind} {name}"),
        "resource.k8s.io",
        kind,
        "",
        name,
        selector_groups=groups,
    )


def group(*expressions: str, of: str = "gpu") -> SelectorGroup:
    return SelectorGroup(
        of, tuple(SelectorUse(f"at[{i}]", expression) for i, expression in enumerate(expressions))
    )


def list_rules(findings: list[DeferredFinding]) -> list[tuple[str, str]]:
    return [(finding.location.subject, finding.finding.rule) for finding in findings]


GPUS = published({"gpu-0": {"a": 1, "b": "x"}, "gpu-1": {"a": 2}})
CLASS = facts("DeviceClass", "gpu", group(f'device.driver == "{DRIVER}"'))


def test_without_devices_there_are_no_findings() -> None:
    claim = facts("ResourceClaim", "c", group(f"{GPU}.z == 1", of="gone"), group("true"))
    empty = published({}, pool="b")
    assert not crosscheck([CLASS, claim, object_facts(empty)])


def test_one_selector_in_many_claims_is_evaluated_once_and_reported_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[str] = []
    real = evaluation.evaluate_selector

    def counting(expression: str, models: Any) -> Any:
        tries.append(expression)
        return real(expression, models)

    monkeypatch.setattr(evaluation, "evaluate_selector", counting)
    claims = [facts("ResourceClaim", f"c{i}", group(f"{GPU}.a == 3")) for i in range(5)]
    found = crosscheck([CLASS, object_facts(GPUS), *claims])
    assert list_rules(found) == [(f"ResourceClaim c{i}", "selector-never-true") for i in range(5)]
    assert tries.count(f"{GPU}.a == 3") == 1


def test_of_two_classes_with_one_name_the_last_counts() -> None:
    other = facts("DeviceClass", "gpu", group(f"{GPU}.a == 1"))
    claim = facts("ResourceClaim", "c", group(f'{GPU}.b == "x"'))
    assert ("ResourceClaim c", "selector-unguarded") in list_rules(
        crosscheck([CLASS, object_facts(GPUS), claim])
    )
    assert ("ResourceClaim c", "selector-unguarded") not in list_rules(
        crosscheck([CLASS, other, object_facts(GPUS), claim])
    )


def test_a_class_without_selectors_accepts_everything() -> None:
    nics = object_facts(published({"eth0": {}}, driver=NIC), 1)
    claim = facts("ResourceClaim", "c", group(f"{GPU}.a == 1", of="any"))
    (finding,) = crosscheck([facts("DeviceClass", "any", group(of="any")), object_facts(GPUS), nics, claim])
    assert finding.finding.rule == "selector-unguarded"
    assert finding.finding.hint == f'write `device.driver == "{DRIVER}" && …`'


def test_selectors_beyond_the_evaluation_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.SelectorEvaluator.__init__, "__defaults__", (10,))
    claims = [facts("ResourceClaim", f"c{i}", group(f"{GPU}.a == {i}")) for i in range(9)]
    found = crosscheck([object_facts(GPUS), *claims])
    (finding,) = [finding for finding in found if finding.finding.rule == "selector-not-checked"]
    assert finding.location.subject == "ResourceClaim c4"
    assert finding.finding.message.startswith("this and 4 more are not tried")
    assert finding.finding.path == "at[0]"


def test_when_not_all_devices_are_evaluated_nothing_is_called_never_or_always_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_models, "MAX_MODELS", 1)
    claim = facts(
        "ResourceClaim", "c", group(f"{GPU}.a == 2"), group(f"{GPU}.a == 1"), group(f"{GPU}.z == 1")
    )
    assert list_rules(crosscheck([CLASS, object_facts(GPUS), claim])) == [
        ("ResourceClaim c", "unknown-attribute"),
        ("DeviceClass gpu", "selector-not-checked"),
    ]


# --- guards ---


@pytest.mark.parametrize(
    ("expression", "guards", "written"),
    [
        (f"{GPU}.a == 1", [f"has({GPU}.a)"], f"has({GPU}.a) && {GPU}.a == 1"),
        (f'{GPU}["a"] == 1', [f"has({GPU}.a)"], f'has({GPU}.a) && {GPU}["a"] == 1'),
        (f"{GPU}.a == 1 || true", [], f"{GPU}.a == 1 || true"),
        (f"{GPU}.a == 1 ? true : false", [f"has({GPU}.a)"], f"has({GPU}.a) && ({GPU}.a == 1 ? true : false)"),
        (
            f'device.driver != "x" && {GPU}.a == 1 && {GPU}.b == 1',
            [f"has({GPU}.a)", f"has({GPU}.b)"],
            f'device.driver != "x" && has({GPU}.a) && {GPU}.a == 1 && has({GPU}.b) && {GPU}.b == 1',
        ),
        (
            f"{GPU}.a == 1 &&\n  {GPU}.b == 1",
            [f"has({GPU}.a)", f"has({GPU}.b)"],
            f"has({GPU}.a) && {GPU}.a == 1 &&\n  has({GPU}.b) && {GPU}.b == 1",
        ),
        (
            f'device.attributes["{NIC}"].a == 1',
            [f'device.driver == "{NIC}"'],
            f'device.driver == "{NIC}" && device.attributes["{NIC}"].a == 1',
        ),
        (
            'device.attributes["other.org"].a == 1',
            ['has(device.attributes["other.org"].a)'],
            'has(device.attributes["other.org"].a) && device.attributes["other.org"].a == 1',
        ),
        (f'{GPU}["in"] == 1', [f'"in" in {GPU}'], f'"in" in {GPU} && {GPU}["in"] == 1'),
        (f"{GPU}[device.driver] == 1", [], ""),
        (  # the guard for the driver of `b` is not needed beside the one for `b`
            f'device.attributes["{NIC}"].b == 1',
            [f'has(device.attributes["{NIC}"].b)'],
            f'has(device.attributes["{NIC}"].b) && device.attributes["{NIC}"].b == 1',
        ),
        (f"1 / 0 == 1 && {GPU}.a == 1", [f"has({GPU}.a)"], ""),
    ],
)
def test_a_guard_is_what_keeps_a_selector_from_failing(
    expression: str, guards: list[str], written: str
) -> None:
    slices = [
        published({"g0": {}, "g1": {"a": 1}, "g2": {"a": 1, "b": 1}}),
        published({"n": {"a": 1}}, driver=NIC),
    ]
    found = devices.index_models(*slices, about=("device == device",))
    models = found.get_view(devices.field_keys_of("device == device"))
    guarded = add_guards(expression, models, found.drivers)
    if written:
        assert (list(guarded.guards), guarded.expression) == (guards, written)
        outcome = evaluate_selector(guarded.expression, models)
        assert outcome is not None
        assert not outcome.faults
    else:
        assert guarded.expression == ""


def test_only_what_is_written_out_can_be_missing() -> None:
    found = devices.index_models(GPUS, about=("device == device",))
    models = found.get_view(devices.field_keys_of("device == device"))
    for expression, name in (
        (f"{GPU}.z == 1", "z"),
        (f"{GPU}[device.driver] == 1", None),
        ("1 / 0 == 1", None),
    ):
        outcome = evaluate_selector(expression, models)
        assert outcome is not None
        reference = find_missing_reference(expression, *outcome.faults[0])
        assert (reference.name if reference else None) == name


@given(selectors, st.sampled_from(["gpu", "gone"]))
def test_whatever_a_selector_is_findings_point_into_it(expression: str, class_name: str) -> None:
    nics = object_facts(published({"eth0": {"a": "x"}}, driver=NIC), 1)
    asking = facts("ResourceClaim", "c", group(expression, of=class_name))
    for finding in crosscheck([CLASS, object_facts(GPUS), nics, asking]):
        complaint = finding.finding
        assert complaint.path
        assert complaint.expected
        if complaint.text_offset is not None and finding.location is asking.location:
            text, offset = complaint.text_offset
            assert text == expression
            assert 0 <= offset < len(text)
