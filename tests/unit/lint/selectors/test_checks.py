"""Selectors and slices together: what is said, where, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.lint import crosscheck
from dray.lint.findings import DeferredFinding, ObjectLocation
from dray.lint.object_facts import ObjectFacts, SelectorGroup, SelectorUse, extract_details
from dray.lint.selectors import device_models, evaluation
from dray.lint.selectors.evaluation import evaluate_selector
from dray.lint.selectors.guards import add_guards, find_missing_reference
from tests.unit.lint import devices
from tests.unit.lint.devices import DRIVER, GPU, published
from tests.unit.lint.selectors.test_evaluation import selectors

NIC = "nic.example.com"


def facts(kind: str, name: str, *asks: SelectorGroup) -> ObjectFacts:
    return ObjectFacts(
        ObjectLocation("f.yaml", 0, "", f"{kind} {name}"), "resource.k8s.io", kind, "", name, asks=asks
    )


def slice_facts(slice_: Any, number: int = 0) -> ObjectFacts:
    where = ObjectLocation("s.yaml", number, "", "ResourceSlice")
    return ObjectFacts(
        where, "resource.k8s.io", "ResourceSlice", "", f"s{number}", **extract_details(slice_, str)
    )


def ask(*expressions: str, of: str = "gpu") -> SelectorGroup:
    return SelectorGroup(
        of, tuple(SelectorUse(f"at[{i}]", expression) for i, expression in enumerate(expressions))
    )


def said(charges: list[DeferredFinding]) -> list[tuple[str, str]]:
    return [(charge.location.subject, charge.finding.rule) for charge in charges]


GPUS = published({"gpu-0": {"a": 1, "b": "x"}, "gpu-1": {"a": 2}})
CLASS = facts("DeviceClass", "gpu", ask(f'device.driver == "{DRIVER}"'))


def test_without_devices_nothing_is_said() -> None:
    claim = facts("ResourceClaim", "c", ask(f"{GPU}.z == 1", of="gone"), ask("true"))
    empty = published({}, pool="b")
    assert not crosscheck([CLASS, claim, slice_facts(empty)])


def test_one_selector_in_many_claims_is_judged_once_and_told_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    real = evaluation.evaluate_selector

    def counting(expression: str, models: Any) -> Any:
        tries.append(expression)
        return real(expression, models)

    monkeypatch.setattr(evaluation, "evaluate_selector", counting)
    claims = [facts("ResourceClaim", f"c{i}", ask(f"{GPU}.a == 3")) for i in range(5)]
    found = crosscheck([CLASS, slice_facts(GPUS), *claims])
    assert said(found) == [(f"ResourceClaim c{i}", "selector-never-true") for i in range(5)]
    assert tries.count(f"{GPU}.a == 3") == 1


def test_of_two_classes_with_one_name_the_last_counts() -> None:
    other = facts("DeviceClass", "gpu", ask(f"{GPU}.a == 1"))
    claim = facts("ResourceClaim", "c", ask(f'{GPU}.b == "x"'))
    assert ("ResourceClaim c", "selector-unguarded") in said(crosscheck([CLASS, slice_facts(GPUS), claim]))
    assert ("ResourceClaim c", "selector-unguarded") not in said(
        crosscheck([CLASS, other, slice_facts(GPUS), claim])
    )


def test_a_class_without_selectors_accepts_everything() -> None:
    nics = slice_facts(published({"eth0": {}}, driver=NIC), 1)
    claim = facts("ResourceClaim", "c", ask(f"{GPU}.a == 1", of="any"))
    (charge,) = crosscheck([facts("DeviceClass", "any", ask(of="any")), slice_facts(GPUS), nics, claim])
    assert charge.finding.rule == "selector-unguarded"
    assert charge.finding.hint == f'write `device.driver == "{DRIVER}" && …`'


def test_selectors_for_which_there_is_no_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.SelectorEvaluator.__init__, "__defaults__", (10,))
    claims = [facts("ResourceClaim", f"c{i}", ask(f"{GPU}.a == {i}")) for i in range(9)]
    found = crosscheck([slice_facts(GPUS), *claims])
    (charge,) = [charge for charge in found if charge.finding.rule == "selector-not-checked"]
    assert charge.location.subject == "ResourceClaim c4"
    assert charge.finding.message.startswith("this and 4 more are not tried")
    assert charge.finding.path == "at[0]"


def test_when_not_all_devices_are_looked_at_nothing_is_called_never_or_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_models, "MAX_MODELS", 1)
    claim = facts("ResourceClaim", "c", ask(f"{GPU}.a == 2"), ask(f"{GPU}.a == 1"), ask(f"{GPU}.z == 1"))
    assert said(crosscheck([CLASS, slice_facts(GPUS), claim])) == [
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
    found = devices.catalogue(*slices, about=("device == device",))
    models = found.get_view(devices.needs_of("device == device"))
    made = add_guards(expression, models, found.drivers)
    if written:
        assert (list(made.guards), made.expression) == (guards, written)
        outcome = evaluate_selector(made.expression, models)
        assert outcome is not None
        assert not outcome.faults
    else:
        assert made.expression == ""


def test_only_what_is_written_out_can_be_missing() -> None:
    found = devices.catalogue(GPUS, about=("device == device",))
    models = found.get_view(devices.needs_of("device == device"))
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
    nics = slice_facts(published({"eth0": {"a": "x"}}, driver=NIC), 1)
    asking = facts("ResourceClaim", "c", ask(expression, of=class_name))
    for charge in crosscheck([CLASS, slice_facts(GPUS), nics, asking]):
        complaint = charge.finding
        assert complaint.path
        assert complaint.expected
        if complaint.text_offset is not None and charge.location is asking.location:
            text, offset = complaint.text_offset
            assert text == expression
            assert 0 <= offset < len(text)
