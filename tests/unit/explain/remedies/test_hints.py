"""Hints: confirmed changes only."""

from __future__ import annotations

import importlib

import msgspec
import pytest

from dray.api.json_text import write_json
from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange
from dray.explain import Diagnosis, diagnose
from dray.explain.remedies.proposals import REMEDIES, find_largest_allowed
from dray.values.quantity import Quantity
from tests.unit.explain.cluster import Cluster, attribute, claim, counter_set, first_of, memory, request
from tests.unit.explain.situations import SITUATIONS, TAINT, closest

hints_module = importlib.import_module("dray.explain.remedies.hints")


def texts(diagnosis: Diagnosis) -> list[str]:
    return [hint.text for hint in diagnosis.hints]


def kinds(diagnosis: Diagnosis) -> list[str]:
    return [hint.kind for hint in diagnosis.hints]


# --- taints ---


def test_tolerating_a_taint():
    found = Cluster().node("node-a", f"gpu-0 {TAINT}").diagnose(claim())
    assert texts(found) == ["tolerating `gpu.example/maintenance:NoSchedule`"]


def test_a_second_taint_is_named_too():
    both = f"{TAINT} taint=gpu.example/hot:NoExecute"
    found = Cluster().node("node-a", f"gpu-0 {both}").diagnose(claim())
    assert texts(found) == ["tolerating `gpu.example/maintenance:NoSchedule` and `gpu.example/hot:NoExecute`"]


def test_a_taint_that_is_tolerated_already_is_not_named():
    both = f"{TAINT} taint=gpu.example/hot:NoExecute"
    asked = request(tolerates=["gpu.example/maintenance"])
    found = Cluster().node("node-a", f"gpu-0 {both}").diagnose(claim(asked))
    assert texts(found) == ["tolerating `gpu.example/hot:NoExecute`"]


def test_tolerating_does_not_help_when_the_device_is_too_few():
    found = Cluster().node("node-a", f"gpu-0 {TAINT}").diagnose(claim(request(count=2)))
    assert "Tolerate" not in kinds(found)


def test_tolerating_does_not_help_when_the_device_is_on_the_wrong_numa_node():
    cluster = Cluster().node("node-a", f"gpu-0 numa=0\ngpu-1 numa=1 {TAINT}")
    assert "Tolerate" not in kinds(cluster.diagnose(claim(request(count=2), same="numa")))


# --- amounts ---


def test_asking_for_the_largest_amount_that_is_left():
    lines = (
        "gpu-0 shared memory:10Gi share=ml/old/memory:7Gi\ngpu-1 shared memory:10Gi share=ml/old/memory:8Gi"
    )
    found = Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi")))
    assert texts(found)[0] == "asking for 3Gi of `memory` instead of 5Gi in request `gpu`"


def test_two_devices_need_an_amount_that_two_have_left():
    lines = (
        "gpu-0 shared memory:10Gi share=ml/old/memory:7Gi\ngpu-1 shared memory:10Gi share=ml/old/memory:8Gi"
    )
    found = Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi", count=2)))
    assert texts(found)[0] == "asking for 2Gi of `memory` instead of 5Gi in request `gpu`"


def test_nothing_left_is_no_amount_to_ask_for():
    lines = "gpu-0 shared memory:10Gi share=ml/old/memory:10Gi"
    found = Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi")))
    assert "AskForLess" not in kinds(found)


def test_a_request_without_an_amount_takes_all_and_may_ask_for_less():
    lines = "gpu-0 shared memory:10Gi share=ml/old/memory:7Gi"
    found = Cluster().node("node-a", lines).diagnose(claim())
    assert texts(found)[0] == "asking for 3Gi of `memory` (now all of it) in request `gpu`"


# --- numbers of devices ---


def test_asking_for_as_many_devices_as_there_are():
    found = Cluster().node("node-a", "gpu-0\ngpu-1\ngpu-2").diagnose(claim(request(count=8)))
    assert texts(found) == ["asking for 3 devices instead of 8 in request `gpu`"]


def test_fewer_devices_do_not_help_when_there_is_none():
    found = Cluster().node("node-a", "gpu-0 held=ml/old").diagnose(claim(request(count=2)))
    assert kinds(found) == []


def test_fewer_devices_of_one_request_do_not_help_when_another_has_none():
    asked = [request("a", count=2), request("b", where=[attribute("size", "huge")])]
    found = Cluster().node("node-a", "gpu-0 size=small").diagnose(claim(*asked))
    assert "AskForFewer" not in kinds(found)


# --- selectors ---


def test_lowering_an_amount_in_a_selector():
    cluster = Cluster().node("node-a", "gpu-0 memory:24Gi\ngpu-1 memory:40Gi")
    found = cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))
    assert texts(found) == ["asking for 40Gi instead of 80Gi in the selector of request `gpu`"]


def test_two_devices_need_a_selector_that_two_meet():
    cluster = Cluster().node("node-a", "gpu-0 memory:24Gi\ngpu-1 memory:40Gi")
    found = cluster.diagnose(claim(request(where=[memory(">=", "80Gi")], count=2)))
    assert texts(found)[0] == "asking for 24Gi instead of 80Gi in the selector of request `gpu`"


def test_dropping_one_condition_of_several():
    both = f"{attribute('numa', 7)} && {attribute('size', 'large')}"
    found = Cluster().node("node-a", "gpu-0 numa=0 size=large").diagnose(claim(request(where=[both])))
    assert texts(found) == ["dropping the condition `numa == 7` of request `gpu`"]


def test_dropping_a_selector():
    found = (
        Cluster()
        .node("node-a", "gpu-0 size=small")
        .diagnose(claim(request(where=[attribute("size", "large")])))
    )
    assert texts(found) == ['dropping the selector `size == "large"` of request `gpu`']


def test_dropping_one_selector_does_not_help_when_another_is_false():
    asked = request(where=[attribute("size", "large"), attribute("numa", 7)])
    assert kinds(Cluster().node("node-a", "gpu-0 size=small numa=0").diagnose(claim(asked))) == []


def test_dropping_a_selector_does_not_help_when_the_device_is_in_use():
    cluster = Cluster().node("node-a", "gpu-0 size=small held=ml/old")
    assert kinds(cluster.diagnose(claim(request(where=[attribute("size", "large")])))) == []


def test_the_selectors_of_a_class_are_never_dropped():
    cluster = Cluster().node("node-a", "gpu-0 size=small").add_class("huge", attribute("size", "huge"))
    assert "RelaxSelector" not in kinds(cluster.diagnose(claim(request(of="huge"))))


def test_guarding_a_selector_that_fails():
    cluster = Cluster().node("node-a", "gpu-0\ngpu-1 memory:80Gi")
    found = cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))
    guard = '`has(device.capacity["gpu.example"].memory)`'
    assert texts(found) == [f"guarding the selector of request `gpu` with {guard}"]


def test_a_selector_is_guarded_against_everything_that_some_device_lacks():
    cluster = Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 memory:80Gi\ngpu-2 numa=0 memory:80Gi")
    both = f"{memory('>=', '80Gi')} && {attribute('numa', 0)}"
    found = cluster.diagnose(claim(request(where=[both])))
    guards = 'has(device.capacity["gpu.example"].memory) && has(device.attributes["gpu.example"].numa)'
    assert texts(found) == [f"guarding the selector of request `gpu` with `{guards}`"]


def test_a_guard_does_not_help_when_the_other_devices_are_in_use():
    cluster = Cluster().node("node-a", "gpu-0\ngpu-1 memory:80Gi held=ml/old")
    found = cluster.diagnose(claim(request(where=[memory(">=", "80Gi")])))
    assert texts(found)[0] == 'dropping the selector `memory >= quantity("80Gi")` of request `gpu`'


# --- constraints ---


def test_dropping_a_constraint():
    found = (
        Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1").diagnose(claim(request(count=2), same="numa"))
    )
    assert texts(found)[-1] == "dropping the constraint `same gpu.example/numa`"


def test_dropping_a_constraint_does_not_help_when_there_are_too_few_devices_anyway():
    found = (
        Cluster().node("node-a", "gpu-0 numa=0\ngpu-1 numa=1").diagnose(claim(request(count=3), same="numa"))
    )
    assert kinds(found) == ["AskForFewer"]


def test_of_two_constraints_the_one_that_helps_is_named():
    cluster = Cluster().node("node-a", "gpu-0 numa=0 size=a\ngpu-1 numa=1 size=b")
    found = cluster.diagnose(claim(request(count=2), same="numa", different="size"))
    assert texts(found)[-1] == "dropping the constraint `same gpu.example/numa`"


# --- claims that hold devices ---


def test_giving_back_a_claim():
    cluster = Cluster().node("node-a", "gpu-0 held=ml/one\ngpu-1 held=ml/two\ngpu-2 held=ml/two")
    found = cluster.diagnose(claim(request(count=2)))
    assert texts(found) == ["giving back claim ml/two (it holds gpu-1 and gpu-2)"]


def test_giving_back_does_not_help_when_the_device_is_tainted_as_well():
    assert kinds(Cluster().node("node-a", f"gpu-0 held=ml/old {TAINT}").diagnose(claim())) == []


def test_giving_back_what_uses_up_counters():
    lines = "big draws=board/memory:40Gi size=big\nsmall draws=board/memory:10Gi held=ml/old size=small"
    cluster = Cluster().node("node-a", lines, counters=counter_set("board", "memory:40Gi"))
    found = cluster.diagnose(claim(request(where=[attribute("size", "big")])))
    assert texts(found) == ["giving back claim ml/old (it holds small)"]


def test_a_share_that_others_hold_too_is_not_freed_by_one_of_them():
    lines = "gpu-0 shared memory:10Gi share=ml/one/memory:4Gi share=ml/two/memory:4Gi"
    found = Cluster().node("node-a", lines).diagnose(claim(request(capacity="memory:5Gi")))
    assert "FreeClaim" not in kinds(found)


# --- pools ---


def test_completing_a_pool():
    found = Cluster().node("node-a", "gpu-0", slices=2).diagnose(claim())
    assert texts(found) == ["the missing slice of pool gpu.example/node-a"]


def test_completing_a_pool_does_not_help_when_its_devices_do_not_fit():
    assert kinds(Cluster().node("node-a", "gpu-0 held=ml/old", slices=2).diagnose(claim())) == []


# --- classes ---


def test_a_class_with_a_similar_name():
    cluster = Cluster().node("node-a", "gpu-0 size=small")
    cluster.add_class("gpu-large", attribute("size", "large")).add_class(
        "gpu-small", attribute("size", "small")
    )
    found = cluster.diagnose(claim(request(of="gpu-large")))
    assert texts(found) == ["asking for class `gpu-small` instead of `gpu-large` in request `gpu`"]


def test_a_class_of_another_name_is_not_proposed_even_when_it_would_fit():
    cluster = Cluster().node("node-a", "gpu-0 size=small").add_class("nic", attribute("size", "large"))
    assert kinds(cluster.diagnose(claim(request(of="nic")))) == []


def test_for_an_unknown_class_only_one_that_fits_is_proposed():
    cluster = Cluster().node("node-a", "gpu-0 size=small")
    cluster.add_class("gpu-large", attribute("size", "large")).add_class(
        "gpu-small", attribute("size", "small")
    )
    found = cluster.diagnose(claim(request(of="gpu-larg")))
    assert texts(found) == ["asking for class `gpu-small` instead of `gpu-larg` in request `gpu`"]


def test_for_an_unknown_class_nothing_is_proposed_when_its_devices_are_in_use():
    assert kinds(Cluster().node("node-a", "gpu-0 held=ml/old").diagnose(claim(request(of="gpus")))) == []


# --- all of them ---


@pytest.mark.parametrize("name", SITUATIONS)
def test_an_unconfirmed_change_is_no_hint(name, monkeypatch):
    def never(*_):
        yield
        return False

    monkeypatch.setattr(hints_module, "try_change", never)
    assert SITUATIONS[name]().hints == ()


@pytest.mark.parametrize("name", SITUATIONS)
def test_at_most_three_one_of_a_kind_the_smallest_first(name):
    found = kinds(SITUATIONS[name]())
    assert len(found) <= 3
    assert found == [kind for kind in REMEDIES if kind in found]


def test_an_alternative_may_be_what_is_changed():
    asked = first_of("gpu", large={"where": [attribute("size", "large")]}, small={"of": "gpu", "count": 3})
    found = Cluster().node("node-a", "gpu-0 size=small").diagnose(claim(asked))
    assert texts(found) == [
        'dropping the selector `size == "large"` of request `gpu/large`',
        "asking for 1 device instead of 3 in request `gpu/small`",
    ]


def test_admin_access_is_never_proposed():
    for situation in SITUATIONS.values():
        assert not any("admin" in text for text in texts(situation()))


def test_a_hint_names_all_nodes_that_look_alike():
    cluster = Cluster().node("node-a", f"gpu-0 {TAINT}").node("node-b", f"gpu-0 {TAINT}")
    [hint] = cluster.diagnose(claim()).hints
    assert hint.nodes == ("node-a", "node-b")


def test_no_hints_are_given_when_none_are_requested():
    cluster = Cluster().node("node-a", f"gpu-0 {TAINT}")
    assert cluster.diagnose(claim(), hints=0).hints == ()
    assert len(closest().hints) == 3
    assert cluster.diagnose(claim(request(of="gpus")), hints=0).hints == ()


def test_searching_for_hints_changes_nothing():
    cluster = (
        Cluster().node("node-a", "gpu-0 numa=0 held=ml/old\ngpu-1 numa=1").node("node-b", "gpu-0", slices=2)
    )
    asked = claim(request(count=2), same="numa")
    before = (write_json(asked), cluster.inventory.usage)
    inventory = cluster.inventory
    first = diagnose(inventory, [asked], cluster.nodes)
    assert write_json(asked) == before[0]
    assert msgspec.structs.asdict(diagnose(inventory, [asked], cluster.nodes)) == msgspec.structs.asdict(
        first
    )


def _range(least: str, step: str | None) -> CapacityRequestPolicy:
    pace = Quantity.parse(step) if step is not None else None
    return CapacityRequestPolicy(valid_range=CapacityRequestPolicyRange(min=Quantity.parse(least), step=pace))


def _amounts(*texts: str) -> tuple[Quantity, ...]:
    return tuple(Quantity.parse(text) for text in texts)


@pytest.mark.parametrize(
    ("policy", "left", "allowed"),
    [
        (None, "3Gi", "3Gi"),
        (CapacityRequestPolicy(default=Quantity.parse("1Gi")), "3Gi", "3Gi"),
        (CapacityRequestPolicy(valid_values=_amounts("1Gi", "2Gi", "4Gi")), "3Gi", "2Gi"),
        (CapacityRequestPolicy(valid_values=_amounts("4Gi")), "3Gi", "0"),
        (_range("1Gi", "2Gi"), "4Gi", "3Gi"),
        (_range("5Gi", "2Gi"), "4Gi", "0"),
        (_range("1Gi", None), "4Gi", "4Gi"),
    ],
)
def test_the_largest_amount_a_policy_does_not_round_up(policy, left, allowed):
    assert find_largest_allowed(policy, Quantity.parse(left).nanos) == Quantity.parse(allowed).nanos
