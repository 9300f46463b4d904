"""Scheduler and drivers find a node that suits all classic claims of a pod, if there is one.

This holds however few nodes the drivers report, whichever node the scheduler prefers each time, and whichever
claim it releases when it is stuck.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.api.classic import ClassicClaimStatus, ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED, PENDING, REALLOCATE
from dray.placement.classic_negotiation import (
    ClassicAction,
    ClassicClaimsReady,
    apply_action,
    get_scheduler_status,
    get_unsuitable_nodes,
)
from dray.placement.framework import PreFilterResult
from dray.placement.plugins.classic_resources import ClassicResources, decide_next_step, post_filter
from dray.values.node_selectors import build_node_name_selector
from tests.effort import effort
from tests.unit.placement.classic_objects import classic, node_state, pending_pod

NODES = ("a", "b", "c", "d", "e")
ENOUGH = 300
"""Rounds after which they will not agree any more."""


@dataclass(frozen=True)
class Driver:
    """Can allocate on some nodes; says so of all it is asked about, or only of the one that is wanted."""

    good: frozenset[str]
    eager: bool

    def acted(self, claim: ClassicResourceClaim) -> ClassicResourceClaim:
        status, offer = claim.status, get_scheduler_status(claim)
        if status.phase == REALLOCATE:
            return replace(claim, status=ClassicClaimStatus(phase=PENDING, user_limit=1))
        if status.phase == ALLOCATED or status.scheduling is None:
            return claim
        wanted = offer.selected_node
        if wanted in self.good:
            here = build_node_name_selector(wanted)
            return replace(
                claim, status=replace(status, phase=ALLOCATED, available_on_nodes=here, scheduling=None)
            )
        looked_at = (
            {*offer.potential_nodes} if self.eager else {*get_unsuitable_nodes(claim)} | {wanted} - {""}
        )
        declined = tuple(sorted(looked_at - self.good))
        part = replace(status.scheduling.driver, unsuitable_nodes=declined)
        return replace(claim, status=replace(status, scheduling=replace(status.scheduling, driver=part)))


def attempt(claims: tuple[ClassicResourceClaim, ...], liking: int) -> tuple[ClassicAction, ...] | None:
    """What the scheduler writes; None when the pod is ready."""
    who = pending_pod(*claims)
    opinion = ClassicResources().pre_filter(who, None)  # type: ignore[arg-type]
    if opinion is not None and not isinstance(opinion, PreFilterResult):
        return ()
    judge = opinion.filter if opinion is not None else None
    verdicts = {name: judge(node_state(name)) if judge is not None else None for name in NODES}
    feasible = [name for name, verdict in verdicts.items() if verdict is None]
    if not feasible:
        return post_filter(who, [verdict for verdict in verdicts.values() if verdict], liking)
    at = liking % len(feasible)
    order = feasible[at:] + feasible[:at]
    step = decide_next_step(who, order, order[0])
    return None if isinstance(step, ClassicClaimsReady) else step.actions


def rounds(drivers: list[Driver], likings: list[int]) -> int | None:
    """After how many rounds the pod is ready; None when nothing moves any more."""
    claims = tuple(classic(f"c{number}") for number in range(len(drivers)))
    still = 0
    for count in range(ENOUGH):
        actions = attempt(claims, likings[count % len(likings)])
        if actions is None:
            return count
        before = claims
        for action in actions:
            changed = apply_action(action)
            claims = tuple(
                changed if each.metadata.name == changed.metadata.name else each for each in claims
            )
        claims = tuple(driver.acted(claim) for driver, claim in zip(drivers, claims, strict=True))
        still = still + 1 if claims == before else 0
        if still > len(likings):
            return None
    raise AssertionError(f"they go on for ever: {claims}")


good_nodes = st.frozensets(st.sampled_from(NODES), max_size=len(NODES))
some_drivers = st.lists(st.builds(Driver, good_nodes, st.booleans()), min_size=1, max_size=4)
some_likings = st.lists(st.integers(0, 11), min_size=1, max_size=6)


@pytest.mark.req("K3063-050", "K3063-040", "K3063-041", "K3063-112")
@effort(4)
@given(some_drivers, some_likings)
def test_a_node_that_suits_all_is_found(drivers, likings):
    common = frozenset.intersection(*(driver.good for driver in drivers))
    found = rounds(drivers, likings)
    assert (found is not None) == bool(common)
