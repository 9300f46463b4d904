"""Every rule that can refuse has a phrase, and a situation in which it is given."""

from __future__ import annotations

import json

import pytest

from dray.allocator.refusals import REASON_TEXTS, RefusalReason
from dray.explain import to_document
from dray.explain.diagnosis import DeviceName, DeviceOutcome, RefusalDetails
from dray.explain.rendering.refusal_phrases import PHRASE_FORMATTERS, format_obstacle, summarize_refusals
from tests.unit.explain.cluster import Cluster, claim, request
from tests.unit.explain.situations import SITUATIONS

NO_SITUATION = {
    RefusalReason.TOO_FEW: "pruning reports it about a whole alternative; see test_search_trace",
    RefusalReason.LEADS_NOWHERE: "see `turned_back`: it is given for devices that were passed over",
}


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_reason_has_a_text_and_a_phrase(reason):
    assert REASON_TEXTS[reason]
    assert callable(PHRASE_FORMATTERS[reason])


def reasons_in(value: object) -> set[str]:
    if isinstance(value, dict):
        found = {value["reason"]} if "reason" in value else set()
        return found.union(*(reasons_in(part) for part in value.values()))
    return set().union(*(reasons_in(part) for part in value)) if isinstance(value, list) else set()


def test_every_reason_is_given_in_some_situation():
    given: set[str] = set()
    for situation in SITUATIONS.values():
        given |= reasons_in(json.loads(json.dumps(to_document(situation()))))
    assert {reason for reason in RefusalReason if reason not in given} <= set(NO_SITUATION)
    assert RefusalReason.LEADS_NOWHERE in given


def build_outcomes(*details: RefusalDetails) -> list[DeviceOutcome]:
    names = [DeviceName(driver="d", pool="p", device=f"gpu-{i}") for i in range(len(details))]
    return [DeviceOutcome(device=name, why=why) for name, why in zip(names, details, strict=True)]


@pytest.mark.parametrize(
    ("details", "named", "without_names"),
    [
        (
            [RefusalDetails(reason=RefusalReason.IN_USE, holders=(f"ml/{i}",)) for i in range(4)],
            "4 in use by ml/0, ml/1 and 2 more",
            "4 in use",
        ),
        ([RefusalDetails(reason=RefusalReason.IN_USE)], "1 in use", "1 in use"),
        (
            [
                RefusalDetails(
                    reason=RefusalReason.BROKEN_SELECTOR,
                    expression="x > 1",
                    error="no such key: x\n  x > 1\n  ^",
                )
            ],
            "1 cannot be evaluated (`x > 1` fails: no such key: x)",
            "1 cannot be evaluated (`x > 1` fails: no such key: x)",
        ),
        (
            [
                RefusalDetails(reason=RefusalReason.CAPACITY_SHORT, name="memory", wanted="5Gi", left=left)
                for left in ("900Mi", "3Gi")
            ],
            "2 with at most 3Gi of `memory` left, 5Gi asked",
            "2 with at most 3Gi of `memory` left, 5Gi asked",
        ),
        (
            [RefusalDetails(reason=RefusalReason.COUNTER_SHORT)] * 2,
            "2 in a pool whose shared counters are overdrawn",
            "2 in a pool whose shared counters are overdrawn",
        ),
        (
            [
                RefusalDetails(reason=RefusalReason.COUNTER_SHORT, name="a/b", left="1", wanted=wanted)
                for wanted in ("20", "3")
            ],
            "2 short of counter `a/b` (1 left, at least 3 needed)",
            "2 short of counter `a/b` (1 left, at least 3 needed)",
        ),
        (
            [
                RefusalDetails(
                    reason=RefusalReason.CONSTRAINT, name="d/numa", value="1", expected="0", peers=("gpu-9",)
                )
            ]
            * 2,
            "2 with numa 1 (constraint: same d/numa = 0, like gpu-9)",
            "2 with numa 1 (constraint: same d/numa = 0)",
        ),
        (
            [
                RefusalDetails(
                    reason=RefusalReason.CONSTRAINT,
                    name="d/numa",
                    value=v,
                    expected=v,
                    distinct=True,
                    peers=(f"gpu-{v}",),
                )
                for v in ("1", "2")
            ],
            "2 with numa 1 and 2 (constraint: different d/numa, taken by gpu-1 and gpu-2)",
            "2 with numa 1 and 2 (constraint: different d/numa)",
        ),
        (
            [RefusalDetails(reason=RefusalReason.TAKEN_HERE)],
            *["1 taken by another request of the same pod"] * 2,
        ),
        (
            [RefusalDetails(reason=RefusalReason.NODE_SELECTOR)] * 2,
            *["2 with a node selector of several terms"] * 2,
        ),
        (
            [RefusalDetails(reason=RefusalReason.BINDING_CONDITIONS)],
            *["1 with binding conditions (feature gate DRADeviceBindingConditions is off)"] * 2,
        ),
        (
            [RefusalDetails(reason=RefusalReason.COUNTERS_OFF)] * 2,
            *["2 drawing from shared counters (feature gate DRAPartitionableDevices is off)"] * 2,
        ),
        (
            [RefusalDetails(reason=RefusalReason.LEADS_NOWHERE)],
            *["1 of no use: too little is left for the rest then"] * 2,
        ),
        ([RefusalDetails(reason=RefusalReason.TAINTED)], "1 tainted", "1 tainted"),
    ],
)
def test_refused_devices_become_a_phrase(details, named, without_names):
    assert summarize_refusals(build_outcomes(*details), with_names=True) == [named]
    assert summarize_refusals(build_outcomes(*details), with_names=False) == [without_names]


def test_the_most_frequent_reason_comes_first_and_the_earlier_rule_among_equals():
    mixed = [RefusalReason.TAINTED, RefusalReason.IN_USE, RefusalReason.TAINTED, RefusalReason.TAKEN_HERE]
    phrases = summarize_refusals(
        build_outcomes(*(RefusalDetails(reason=reason) for reason in mixed)), with_names=True
    )
    assert phrases == ["2 tainted", "1 in use", "1 taken by another request of the same pod"]


def test_in_use_comes_before_what_else_is_wrong_with_a_device():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/old taint=a/b:NoSchedule")
    assert reasons_in(to_document(cluster.diagnose(claim(request())))) == {"InUse"}


def test_a_selector_comes_before_everything():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/old taint=a/b:NoSchedule")
    cluster.add_class("other", 'device.driver == "other.example"')
    assert reasons_in(to_document(cluster.diagnose(claim(request(of="other"))))) == {"Unsuited"}


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (
            RefusalDetails(reason=RefusalReason.TOO_FEW, wanted="3", left="2"),
            "not enough devices: 3 needed, 2 to be had",
        ),
        (
            RefusalDetails(reason=RefusalReason.CONSTRAINT, name="d/numa"),
            "too few devices have the same d/numa",
        ),
        (
            RefusalDetails(reason=RefusalReason.CONSTRAINT, name="d/numa", distinct=True),
            "too few devices have different d/numa",
        ),
        (
            RefusalDetails(
                reason=RefusalReason.COUNTER_SHORT, name="board/memory", left="10Gi", wanted="40Gi"
            ),
            "counter `board/memory` has 10Gi left, 40Gi needed",
        ),
        (RefusalDetails(reason=RefusalReason.NOTHING_MATCHES), ""),
    ],
)
def test_what_pruning_reports_about_a_whole_alternative(why, text):
    assert format_obstacle(why) == text
