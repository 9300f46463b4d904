"""The scheduler cache: what counts for which node, and what the next snapshot shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.refusals import RefusalReason
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
from dray.placement.resource_requests import NO_REQUESTS, compute_requests
from dray.placement.snapshot import ClusterSnapshot
from dray.scheduler.cache import SchedulerCache
from tests.brute import builders as make
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, having
from tests.unit.placement.pods_and_nodes import asking, node


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


def overlay(*nodes: str, admission: Any = OPEN) -> SchedulerCache:
    made = SchedulerCache(admission)
    for name in nodes:
        made.update_node(node(name))
        made.update_slice(published(name))
    return made


def cpu(snapshot: ClusterSnapshot, name: str) -> int:
    return snapshot.node_states[name].requests.get("cpu") // 10**9


def test_nothing_happened_is_the_same_snapshot() -> None:
    here = overlay("a")
    assert here.update_snapshot() is here.update_snapshot()


def test_some_nodes_are_updated_first_and_the_others_by_the_next_call() -> None:
    here = overlay("a", "b", "c")
    assert list(here.update_snapshot(max_nodes=2).node_states) == ["a", "b"]
    assert here.has_changes
    assert list(here.update_snapshot().node_states) == ["a", "b", "c"]
    assert not here.has_changes


def test_a_heartbeat_changes_nothing() -> None:
    here = overlay("a")
    before = here.update_snapshot()
    here.update_node(node("a"))
    assert here.update_snapshot() is before
    here.update_node(node("a", labels={"new": "1"}))
    assert here.update_snapshot().node_states["a"].node.metadata.labels == {"new": "1"}


def test_a_pod_counts_from_the_assumption_until_it_is_over() -> None:
    here = overlay("a", "b")
    here.assume_pod(pod(), "a", compute_requests(pod()))
    assert cpu(here.update_snapshot(), "a") == 1
    here.update_pod(pod(on="a"))
    assert cpu(here.update_snapshot(), "a") == 1
    assert not here.forget_pod(pod())  # it has been seen there: a late failure does not take it away
    assert cpu(here.update_snapshot(), "a") == 1
    here.update_pod(pod(on="a", phase="Succeeded"))
    assert here.update_snapshot().node_states["a"].requests == NO_REQUESTS


def test_an_assumption_that_fails_is_forgotten_once() -> None:
    here = overlay("a")
    here.assume_pod(pod(), "a", compute_requests(pod()))
    assert here.forget_pod(pod())
    assert not here.forget_pod(pod())
    assert here.update_snapshot().node_states["a"].requests == NO_REQUESTS


@pytest.mark.parametrize(
    "end",
    [
        lambda here: here.forget_pod(pod()),
        lambda here: here.remove_pod(pod()),  # deleted while its binding is on the way
        lambda here: here.update_pod(pod(on="b")),  # bound by another scheduler
    ],
)
def test_a_node_that_does_not_get_its_assumed_pod_is_told_of_once(
    end: Callable[[SchedulerCache], object],
) -> None:
    here = overlay("a", "b")
    freed: list[str] = []
    here.on_capacity_freed = lambda: freed.append("freed")
    here.assume_pod(pod(), "a", compute_requests(pod()))
    end(here)
    here.forget_pod(pod())
    assert freed == ["freed"]


def test_a_pod_that_turns_up_elsewhere_counts_there() -> None:
    here = overlay("a", "b")
    here.assume_pod(pod(), "a", compute_requests(pod()))
    here.update_pod(pod(on="b"))
    snapshot = here.update_snapshot()
    assert (cpu(snapshot, "a"), cpu(snapshot, "b")) == (0, 1)


def test_a_pod_that_is_resized_counts_as_it_is() -> None:
    here = overlay("a")
    here.update_pod(pod(on="a", cpu="1"))
    here.update_pod(pod(on="a", cpu="3"))
    assert cpu(here.update_snapshot(), "a") == 3
    here.update_pod(pod(on="a", cpu="2"))
    assert cpu(here.update_snapshot(), "a") == 2
    here.remove_pod(pod(on="a"))
    assert here.update_snapshot().node_states["a"].requests == NO_REQUESTS


def test_a_pod_without_a_node_counts_nowhere() -> None:
    here = overlay("a")
    here.update_pod(pod())
    here.update_pod(pod(phase="Failed"))
    assert here.update_snapshot().node_states["a"].requests == NO_REQUESTS


def test_pods_are_remembered_while_their_node_is_away() -> None:
    here = overlay("a")
    here.update_pod(pod(on="a"))
    here.remove_node(node("a"))
    assert not here.has_node("a")
    assert "a" not in here.update_snapshot().node_states
    here.update_node(node("a"))
    assert here.has_node("a")
    assert cpu(here.update_snapshot(), "a") == 1


def taken(here: SchedulerCache, name: str) -> int:
    return here.update_snapshot().node_states[name].shape.taken.bit_count()


def test_only_nodes_that_see_the_devices_look_different() -> None:
    here = overlay("a", "b")
    before = here.update_snapshot()
    here.claims.update(having(claim(), "a/d0", where="a"))
    after = here.update_snapshot()
    assert after.node_states["b"] is before.node_states["b"]
    assert (taken(here, "a"), taken(here, "b")) == (1, 0)


def test_devices_that_several_nodes_see_are_taken_for_all_of_them() -> None:
    here = overlay("a", "b")
    here.update_slice(published("net", node_name=None, all_nodes=True))
    here.claims.update(having(claim(), "net/d0"))
    assert (taken(here, "a"), taken(here, "b")) == (1, 1)


def test_devices_that_are_published_after_they_were_taken_are_taken() -> None:
    here = overlay()
    here.claims.update(having(claim(), "a/d0", where="a"))
    here.update_node(node("a"))
    here.update_slice(published("a"))
    assert taken(here, "a") == 1


def test_slices_come_change_and_go() -> None:
    here = overlay("a")
    assert len(here.update_snapshot().node_states["a"].shape.profiles) == 2
    here.update_slice(published("a", devices=5))
    assert len(here.update_snapshot().node_states["a"].shape.profiles) == 5
    here.remove_slice(published("a"))
    assert len(here.update_snapshot().node_states["a"].shape.profiles) == 0


def test_a_slice_that_moves_to_another_node_is_seen_there_and_no_longer_here() -> None:
    here = overlay("a", "b")
    here.update_snapshot()
    here.update_slice(published("a", node_name="b"))
    states = here.update_snapshot().node_states
    assert [len(states[name].shape.profiles) for name in "ab"] == [0, 4]


def test_slices_pass_the_gate_filter() -> None:
    closed = SchedulerCache(
        AllocatorGateFilter(GateSet.from_defaults().override({"DRADeviceBindingConditions": False}))
    )
    closed.update_node(node("a"))
    slow = make.device("d0", binding_conditions=("attached",))
    closed.update_slice(make.published(slow, make.device("d1"), name="a", pool="a", node_name="a"))
    contents = closed.update_snapshot().node_states["a"].shape.profiles
    assert [content.withheld for content in contents] == [RefusalReason.BINDING_CONDITIONS, None]


def test_freed_devices_are_reported_and_allocated_ones_are_not() -> None:
    heard: list[str] = []
    here = SchedulerCache(OPEN, on_freed=lambda: heard.append("freed"))
    held = having(claim(), "a/d0", where="a")
    here.claims.update(held)
    assert heard == []
    assert held.status.allocation is not None
    other = claim(name="other")
    here.claims.update(other)
    here.claims.add_pending_allocation(other, held.status.allocation, "p")
    assert heard == []
    here.claims.remove_pending_user(other, "p")
    assert heard == ["freed"]
    here.claims.remove(held)
    assert heard == ["freed", "freed"]


def test_classes_come_and_go() -> None:
    here = overlay("a")
    here.update_class(make.device_class("x"))
    assert set(here.update_snapshot().inventory.classes) == {"x"}
    here.remove_class(make.device_class("x"))
    assert set(here.update_snapshot().inventory.classes) == set()


def rule(name: str = "r", effect: str = "NoSchedule", **selector: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(**selector), taint=DeviceTaint(key="sick", effect=effect)
    )
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


GATES = AllocatorGateFilter(GateSet.from_defaults())


def tainted(snapshot: ClusterSnapshot, name: str) -> int:
    return sum(1 for content in snapshot.node_states[name].shape.profiles if content.taints)


def test_a_taint_rule_changes_what_only_those_nodes_see_that_see_its_devices() -> None:
    here = overlay("a", "b", admission=GATES)
    before = here.update_snapshot()
    here.update_taint_rule(rule(pool="a", device="d1"))
    seen = here.update_snapshot()
    assert (tainted(seen, "a"), tainted(seen, "b")) == (1, 0)
    assert seen.node_states["b"] is before.node_states["b"]
    here.update_slice(published("a", devices=3))
    assert tainted(here.update_snapshot(), "a") == 1
    here.remove_taint_rule(rule(pool="a", device="d1"))
    here.remove_taint_rule(rule("never seen"))
    assert tainted(here.update_snapshot(), "a") == 0


def test_a_taint_rule_means_nothing_behind_a_closed_gate() -> None:
    for gate in ("DRADeviceTaints", "DRADeviceTaintRules"):
        here = SchedulerCache(AllocatorGateFilter(GateSet.from_defaults().override({gate: False})))
        here.update_node(node("a"))
        here.update_slice(published("a"))
        here.update_taint_rule(rule())
        assert tainted(here.update_snapshot(), "a") == 0


def test_a_taint_rule_that_selects_nothing_here_changes_nothing() -> None:
    here = overlay("a", admission=GATES)
    before = here.update_snapshot()
    here.update_taint_rule(rule(driver="another.example.com"))
    assert here.update_snapshot() is before
