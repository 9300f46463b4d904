"""The overlay: what counts for which node, and what the next photograph shows."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dray.allocator.feature_gates import Admission
from dray.allocator.refusals import Reason
from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourceSlice,
)
from dray.gates import GateSet
from dray.placement.resource_requests import NOTHING, needs_of
from dray.placement.snapshot import Snapshot
from dray.scheduler.cache import Overlay
from tests.brute import making as make
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claimed import claim, having
from tests.unit.placement.seats import asking, node


def pod(name: str = "p", cpu: str = "1", on: str = "", phase: str = "Running") -> Pod:
    asked = asking(cpu=cpu)
    return replace(
        asked,
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=replace(asked.spec, node_name=on),
        status=replace(asked.status, phase=phase),
    )


def published(name: str, devices: int = 2, **more: Any) -> ResourceSlice:
    found = make.devices(*[f"d{number}" for number in range(devices)])
    return make.published(*found, name=name, pool=name, **({"node_name": name} | more))


def overlay(*nodes: str, door: Any = OPEN) -> Overlay:
    made = Overlay(door)
    for name in nodes:
        made.saw_node(node(name))
        made.saw_slice(published(name))
    return made


def cpu(snapshot: Snapshot, name: str) -> int:
    return snapshot.seats[name].needs.of("cpu") // 10**9


def test_nothing_happened_is_the_same_photograph() -> None:
    here = overlay("a")
    assert here.photograph() is here.photograph()


def test_a_sign_of_life_changes_nothing() -> None:
    here = overlay("a")
    before = here.photograph()
    here.saw_node(node("a"))
    assert here.photograph() is before
    here.saw_node(node("a", labels={"new": "1"}))
    assert here.photograph().seats["a"].node.metadata.labels == {"new": "1"}


def test_a_pod_counts_from_the_assumption_until_it_is_over() -> None:
    here = overlay("a", "b")
    here.assume(pod(), "a", needs_of(pod()))
    assert cpu(here.photograph(), "a") == 1
    here.saw_pod(pod(on="a"))
    assert cpu(here.photograph(), "a") == 1
    assert not here.forget(pod())  # it has been seen there: a late failure does not take it away
    assert cpu(here.photograph(), "a") == 1
    here.saw_pod(pod(on="a", phase="Succeeded"))
    assert here.photograph().seats["a"].needs == NOTHING


def test_an_assumption_that_fails_is_forgotten_once() -> None:
    here = overlay("a")
    here.assume(pod(), "a", needs_of(pod()))
    assert here.forget(pod())
    assert not here.forget(pod())
    assert here.photograph().seats["a"].needs == NOTHING


def test_a_pod_that_turns_up_elsewhere_counts_there() -> None:
    here = overlay("a", "b")
    here.assume(pod(), "a", needs_of(pod()))
    here.saw_pod(pod(on="b"))
    snapshot = here.photograph()
    assert (cpu(snapshot, "a"), cpu(snapshot, "b")) == (0, 1)


def test_a_pod_that_is_resized_counts_as_it_is() -> None:
    here = overlay("a")
    here.saw_pod(pod(on="a", cpu="1"))
    here.saw_pod(pod(on="a", cpu="3"))
    assert cpu(here.photograph(), "a") == 3
    here.saw_pod(pod(on="a", cpu="2"))
    assert cpu(here.photograph(), "a") == 2
    here.lost_pod(pod(on="a"))
    assert here.photograph().seats["a"].needs == NOTHING


def test_a_pod_without_a_node_counts_nowhere() -> None:
    here = overlay("a")
    here.saw_pod(pod())
    here.saw_pod(pod(phase="Failed"))
    assert here.photograph().seats["a"].needs == NOTHING


def test_pods_are_remembered_while_their_node_is_away() -> None:
    here = overlay("a")
    here.saw_pod(pod(on="a"))
    here.lost_node(node("a"))
    assert not here.has_node("a")
    assert "a" not in here.photograph().seats
    here.saw_node(node("a"))
    assert here.has_node("a")
    assert cpu(here.photograph(), "a") == 1


def taken(here: Overlay, name: str) -> int:
    return here.photograph().seats[name].shape.taken.bit_count()


def test_only_nodes_that_see_the_devices_look_different() -> None:
    here = overlay("a", "b")
    before = here.photograph()
    here.claims.saw(having(claim(), "a/d0", where="a"))
    after = here.photograph()
    assert after.seats["b"] is before.seats["b"]
    assert (taken(here, "a"), taken(here, "b")) == (1, 0)


def test_devices_that_several_nodes_see_are_taken_for_all_of_them() -> None:
    here = overlay("a", "b")
    here.saw_slice(published("net", node_name=None, all_nodes=True))
    here.claims.saw(having(claim(), "net/d0"))
    assert (taken(here, "a"), taken(here, "b")) == (1, 1)


def test_devices_that_are_published_after_they_were_taken_are_taken() -> None:
    here = overlay()
    here.claims.saw(having(claim(), "a/d0", where="a"))
    here.saw_node(node("a"))
    here.saw_slice(published("a"))
    assert taken(here, "a") == 1


def test_slices_come_change_and_go() -> None:
    here = overlay("a")
    assert len(here.photograph().seats["a"].shape.contents) == 2
    here.saw_slice(published("a", devices=5))
    assert len(here.photograph().seats["a"].shape.contents) == 5
    here.lost_slice(published("a"))
    assert len(here.photograph().seats["a"].shape.contents) == 0


def test_a_slice_that_moves_to_another_node_is_seen_there_and_no_longer_here() -> None:
    here = overlay("a", "b")
    here.photograph()
    here.saw_slice(published("a", node_name="b"))
    seats = here.photograph().seats
    assert [len(seats[name].shape.contents) for name in "ab"] == [0, 4]


def test_slices_pass_the_door() -> None:
    closed = Overlay(Admission(GateSet.default().changed({"DRADeviceBindingConditions": False})))
    closed.saw_node(node("a"))
    slow = make.device("d0", binding_conditions=("attached",))
    closed.saw_slice(make.published(slow, make.device("d1"), name="a", pool="a", node_name="a"))
    contents = closed.photograph().seats["a"].shape.contents
    assert [content.withheld for content in contents] == [Reason.BINDING_CONDITIONS, None]


def test_what_is_given_back_is_heard_and_what_is_taken_is_not() -> None:
    heard: list[str] = []
    here = Overlay(OPEN, freed=lambda: heard.append("freed"))
    held = having(claim(), "a/d0", where="a")
    here.claims.saw(held)
    assert heard == []
    assert held.status.allocation is not None
    other = claim(name="other")
    here.claims.saw(other)
    here.claims.promise(other, held.status.allocation, "p")
    assert heard == []
    here.claims.let_go(other, "p")
    assert heard == ["freed"]
    here.claims.lost(held)
    assert heard == ["freed", "freed"]


def test_classes_come_and_go() -> None:
    here = overlay("a")
    here.saw_class(make.device_class("x"))
    assert set(here.photograph().stock.classes) == {"x"}
    here.lost_class(make.device_class("x"))
    assert set(here.photograph().stock.classes) == set()


def rule(name: str = "r", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(**selector), taint=DeviceTaint(key="sick", effect=effect)
    )
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


GATES = Admission(GateSet.default())


def tainted(snapshot: Snapshot, name: str) -> int:
    return sum(1 for content in snapshot.seats[name].shape.contents if content.taints)


def test_a_taint_rule_changes_what_only_those_nodes_see_that_see_its_devices() -> None:
    here = overlay("a", "b", door=GATES)
    before = here.photograph()
    here.saw_rule(rule(pool="a", device="d1"))
    seen = here.photograph()
    assert (tainted(seen, "a"), tainted(seen, "b")) == (1, 0)
    assert seen.seats["b"] is before.seats["b"]
    here.saw_slice(published("a", devices=3))
    assert tainted(here.photograph(), "a") == 1
    here.lost_rule(rule(pool="a", device="d1"))
    here.lost_rule(rule("never seen"))
    assert tainted(here.photograph(), "a") == 0


def test_a_taint_rule_means_nothing_behind_a_closed_gate() -> None:
    for gate in ("DRADeviceTaints", "DRADeviceTaintRules"):
        here = Overlay(Admission(GateSet.default().changed({gate: False})))
        here.saw_node(node("a"))
        here.saw_slice(published("a"))
        here.saw_rule(rule())
        assert tainted(here.photograph(), "a") == 0


def test_a_taint_rule_that_selects_nothing_here_changes_nothing() -> None:
    here = overlay("a", door=GATES)
    before = here.photograph()
    here.saw_rule(rule(driver="another.example.com"))
    assert here.photograph() is before
