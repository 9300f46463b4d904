"""Taint rule impact: how many devices a taint rule selects, and which pods it evicts or would evict.

Theory of operation: a rule is evaluated as if its effect were `NoExecute`. Of the devices that claims have,
those that it selects count; of the pods that may use such a claim, those whose request does not tolerate the
taint for ever. A pod is *affected* until it is deleted, and *leaving* from then until it is gone: its device
is not free before. The text of the condition follows from these numbers alone, so the same state always has
the same text.

This module is pure: the controller brings the pods it has evicted, because its watch shows them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from dray.api.core import Pod
from dray.api.devices.taint_rules import build_rule_taint, rule_selects
from dray.api.meta import Condition
from dray.api.resource import ConsumerReference, DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.claims import reservation
from dray.claims.taint_eviction import NO_EXECUTE, DevicePath, compute_eviction_time

EVICTION_IN_PROGRESS: Final = "EvictionInProgress"
PENDING, COMPLETED, UNAFFECTED, NO_EFFECT = "PodsPendingEviction", "Completed", "NoPodsAffected", "NoEffect"

PodName = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class TaintRuleImpact:
    """The devices and pods that a rule selects."""

    published: int = 0
    allocated: int = 0
    affected: frozenset[PodName] = frozenset()
    leaving: frozenset[PodName] = frozenset()


def count_published_devices(rule: DeviceTaintRule, slices: Iterable[ResourceSlice]) -> int:
    """How many devices that drivers publish a rule selects."""
    found: set[DevicePath] = set()
    for spec in (each.spec for each in slices if rule_selects(rule, each.spec.driver, each.spec.pool.name)):
        for device in spec.devices:
            if rule_selects(rule, spec.driver, spec.pool.name, device.name):
                found.add((spec.driver, spec.pool.name, device.name))
    return len(found)


def compute_impact(
    rule: DeviceTaintRule,
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    find_pod: Callable[[str, ConsumerReference], Pod | None],
    is_evicted: Callable[[str], bool],
) -> TaintRuleImpact:
    """The current impact of a rule; `find_pod` finds the pod of a consumer in a namespace."""
    devices: set[DevicePath] = set()
    affected: set[PodName] = set()
    leaving: set[PodName] = set()
    for claim in claims:
        held, ends = _find_selected_devices(rule, claim)
        devices |= held
        for consumer in claim.status.reserved_for if ends else ():
            pod = (
                find_pod(claim.metadata.namespace, consumer)
                if reservation.is_pod_consumer(consumer)
                else None
            )
            if pod is None or not pod.spec.node_name or reservation.is_pod_finished(pod):
                continue
            deleted = pod.metadata.deletion_timestamp is not None or is_evicted(pod.metadata.uid)
            (leaving if deleted else affected).add((pod.metadata.namespace, pod.metadata.name))
    return TaintRuleImpact(
        count_published_devices(rule, slices), len(devices), frozenset(affected), frozenset(leaving)
    )


def _find_selected_devices(rule: DeviceTaintRule, claim: ResourceClaim) -> tuple[set[DevicePath], bool]:
    """The devices of a claim that a rule selects, and whether they end its pods."""
    allocation = claim.status.allocation
    if allocation is None:
        return set(), False
    taint = replace(build_rule_taint(rule), effect=NO_EXECUTE)
    chosen = [
        each for each in allocation.devices.results if rule_selects(rule, each.driver, each.pool, each.device)
    ]
    places = {(each.driver, each.pool, each.device) for each in chosen}
    return places, any(compute_eviction_time(taint, each) is not None for each in chosen)


def build_condition(rule: DeviceTaintRule, impact: TaintRuleImpact, evicted: int, *, now: str) -> Condition:
    """The status of a rule; `evicted` pods were evicted for it since the controller started."""
    status, reason, message = _describe_status(rule, impact, evicted)
    known = next((each for each in rule.status.conditions if each.type == EVICTION_IN_PROGRESS), None)
    since = known.last_transition_time if known is not None and known.status == status else now
    return Condition(
        type=EVICTION_IN_PROGRESS,
        status=status,
        observed_generation=rule.metadata.generation,
        last_transition_time=since,
        reason=reason,
        message=message,
    )


def _describe_status(rule: DeviceTaintRule, impact: TaintRuleImpact, evicted: int) -> tuple[str, str, str]:
    effect = rule.spec.taint.effect
    if effect != NO_EXECUTE:
        preview = f"{_format_pods(impact.affected)} would be evicted if the effect was {NO_EXECUTE}"
        return "False", NO_EFFECT, f"{_format_devices(impact)}; {preview}"
    parts = [_format_devices(impact)]
    if impact.affected:
        parts.append(f"{_format_pods(impact.affected)} to be evicted")
    if impact.leaving:
        parts.append(f"{_format_pods(impact.leaving)} deleted and not gone yet")
    if evicted:
        parts.append(f"{_format_count(evicted, 'pod')} evicted since the controller began")
    if not impact.affected and not impact.leaving:
        return "False", COMPLETED if evicted else UNAFFECTED, "; ".join(parts)
    return "True", PENDING, "; ".join(parts)


def _format_devices(impact: TaintRuleImpact) -> str:
    return f"{_format_count(impact.published, 'published device')} and {impact.allocated} in use selected"


def _format_pods(pods: frozenset[PodName]) -> str:
    spaces = len({namespace for namespace, _ in pods})
    return f"{_format_count(len(pods), 'pod')}" + (
        f" in {_format_count(spaces, 'namespace')}" if pods else ""
    )


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
