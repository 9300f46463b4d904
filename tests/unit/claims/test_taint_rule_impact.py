"""Whom a taint rule reaches, and what its status says of that."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dray.api.core import Pod, PodSpec, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    ConsumerReference,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintRuleStatus,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.claims.taint_rule_impact import TaintRuleImpact, build_condition, compute_impact

FOR_EVER = DeviceToleration(key="k", operator="Exists")
BRIEFLY = replace(FOR_EVER, toleration_seconds=60)


def rule(effect: str = "NoExecute", **selector: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(
        device_selector=DeviceTaintSelector(**selector), taint=DeviceTaint(key="k", effect=effect)
    )
    return DeviceTaintRule(metadata=ObjectMeta(name="r", generation=3), spec=spec)


def published(*names: str, name: str = "s") -> ResourceSlice:
    devices = tuple(Device(name=each) for each in names)
    spec = ResourceSliceSpec(driver="d", pool=ResourcePool(name="p"), devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def claim(device: str, *pods: str, tolerations: tuple[DeviceToleration, ...] = ()) -> ResourceClaim:
    result = DeviceRequestAllocationResult(driver="d", pool="p", device=device, tolerations=tolerations)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
    users = tuple(ConsumerReference(resource="pods", name=each, uid=f"uid-{each}") for each in pods)
    return ResourceClaim(
        metadata=ObjectMeta(name=f"c-{device}", namespace="ns"),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=users),
    )


def pod(name: str, node: str = "n", phase: str = "Running", deleted: str | None = None) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", deletion_timestamp=deleted),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


def reach(
    one: DeviceTaintRule, claims: list[ResourceClaim], *pods: Pod, evicted: Any = ()
) -> TaintRuleImpact:
    known = {each.metadata.name: each for each in pods}
    slices = [published("a", "b"), published("b", "c", name="newer")]
    return compute_impact(
        one, slices, claims, lambda _space, user: known.get(user.name), lambda uid: uid in evicted
    )


def test_devices_are_counted_once_and_pods_that_would_have_to_go():
    claims = [claim("a", "p", "q"), claim("b", "r", tolerations=(FOR_EVER,)), claim("z", "s")]
    found = reach(rule(), claims, *map(pod, "pqrs"))
    assert found == TaintRuleImpact(3, 3, frozenset({("ns", "p"), ("ns", "q"), ("ns", "s")}))
    only = reach(rule(device="b"), claims, *map(pod, "pqrs"))
    assert only == TaintRuleImpact(1, 1)


def test_the_effect_of_the_rule_does_not_matter_for_whom_it_would_reach():
    claims = [claim("a", "p", tolerations=(BRIEFLY,))]
    assert reach(rule("None"), claims, pod("p")) == reach(rule(), claims, pod("p"))
    assert reach(rule("None"), claims, pod("p")).affected == {("ns", "p")}


@pytest.mark.parametrize(
    "bystander",
    [pod("p", node=""), pod("p", phase="Succeeded"), pod("other")],
    ids=["without a node", "over", "unknown"],
)
def test_who_needs_no_eviction_does_not_count(bystander):
    found = reach(rule(), [claim("a", "p")], bystander)
    assert (found.affected, found.leaving) == (frozenset(), frozenset())


def test_a_pod_is_affected_or_leaving_and_never_both():
    claims = [claim("a", "p", "q"), claim("b", "q")]
    found = reach(rule(), claims, pod("p", deleted="2026-01-01T00:00:00Z"), pod("q"), evicted={"uid-q"})
    assert (set(found.affected), set(found.leaving)) == (set(), {("ns", "p"), ("ns", "q")})


ONE, TWO = frozenset({("ns", "p")}), frozenset({("ns", "p"), ("other", "p")})


@pytest.mark.parametrize(
    ("effect", "found", "evicted", "said"),
    [
        (
            "NoExecute",
            TaintRuleImpact(1, 0),
            0,
            ("False", "NoPodsAffected", "1 published device and 0 in use selected"),
        ),
        (
            "NoExecute",
            TaintRuleImpact(2, 2, TWO),
            0,
            (
                "True",
                "PodsPendingEviction",
                "2 published devices and 2 in use selected; 2 pods in 2 namespaces to be evicted",
            ),
        ),
        (
            "NoExecute",
            TaintRuleImpact(2, 1, frozenset(), ONE),
            1,
            (
                "True",
                "PodsPendingEviction",
                "2 published devices and 1 in use selected; 1 pod in 1 namespace deleted and not gone yet; "
                "1 pod evicted since the controller began",
            ),
        ),
        (
            "NoExecute",
            TaintRuleImpact(2, 0),
            3,
            (
                "False",
                "Completed",
                "2 published devices and 0 in use selected; 3 pods evicted since the controller began",
            ),
        ),
        (
            "NoSchedule",
            TaintRuleImpact(2, 1),
            0,
            (
                "False",
                "NoEffect",
                "2 published devices and 1 in use selected; "
                "0 pods would be evicted if the effect was NoExecute",
            ),
        ),
    ],
)
def test_the_status_of_a_rule(effect, found, evicted, said):
    condition = build_condition(rule(effect), found, evicted, now="2026-01-01T00:00:00Z")
    assert (condition.status, condition.reason, condition.message) == said
    assert (condition.type, condition.observed_generation) == ("EvictionInProgress", 3)


def test_the_time_is_that_of_the_last_change_between_true_and_false():
    first = build_condition(rule(), TaintRuleImpact(1, 1, ONE), 0, now="2026-01-01T00:00:00Z")
    told = replace(rule(), status=DeviceTaintRuleStatus(conditions=(first,)))
    more = build_condition(told, TaintRuleImpact(2, 2, TWO), 0, now="2026-01-02T00:00:00Z")
    over = build_condition(told, TaintRuleImpact(2, 0), 2, now="2026-01-02T00:00:00Z")
    assert more.last_transition_time == "2026-01-01T00:00:00Z"
    assert over.last_transition_time == "2026-01-02T00:00:00Z"
    assert build_condition(told, TaintRuleImpact(1, 1, ONE), 0, now="2026-01-03T00:00:00Z") == first
