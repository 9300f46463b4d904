"""Allocation results: builds the `AllocationResult` of each claim from the picks of a search.

The search knows candidates as numbers; here they get their names back from the view they were found in. The
caller provides share IDs, one call per share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.requests import AllocationRequest
from dray.allocator.search.trace import Pick
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dray.values.node_selectors import NodeSelector, UnmergeableSelectors


def build_allocations(
    allocation_request: AllocationRequest,
    view: NodeView,
    picks: Sequence[Pick],
    *,
    new_share_id: Callable[[], str],
) -> tuple[AllocationResult, ...]:
    """Build one allocation per claim, in the order of the claims."""
    allocations = []
    for c in range(len(allocation_request.claims)):
        own = (
            [pick for pick in picks if pick.point.choice.claim_index == c]
            if len(allocation_request.claims) > 1
            else picks
        )
        results = tuple([_build_result(view, pick, new_share_id) for pick in own])
        configured = allocation_request.has_class_config or allocation_request.claims[c].spec.devices.config
        devices = DeviceAllocationResult(
            results=results, config=_collect_config(allocation_request, c, own) if configured else ()
        )
        allocations.append(AllocationResult(devices=devices, node_selector=_build_node_selector(view, own)))
    return tuple(allocations)


def _build_result(
    view: NodeView, pick: Pick, new_share_id: Callable[[], str]
) -> DeviceRequestAllocationResult:
    pool_view, position = view.locate_device(pick.candidate)
    profile = pool_view.profiles[position]
    device = profile.device
    alternative = pick.point.alternative
    return DeviceRequestAllocationResult(
        request=alternative.name,
        driver=pool_view.pool[0],
        pool=pool_view.pool[1],
        device=pool_view.names[position],
        admin_access=alternative.admin or None,
        tolerations=alternative.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=new_share_id() if pick.consumed is not None else None,
        consumed_capacity=dict(profile.to_quantities(pick.consumed)) if pick.consumed else {},
    )


def _build_node_selector(view: NodeView, picks: Sequence[Pick]) -> NodeSelector | None:
    """The nodes where the devices can be used together: this node, or what all selectors have in common."""
    common: NodeSelector | None = None
    for pick in picks:
        # From the view, not from its shape: nodes of one shape may reach their devices in different ways.
        pool_view, position = view.locate_device(pick.candidate)
        reach = pool_view.node_scopes[position]
        if reach.local_only:
            return view.own_selector
        if reach.selector is not None and common is not reach.selector:
            merged = reach.selector if common is None else common.merge(reach.selector)
            # Selectors of several terms never get this far: their devices are refused.
            assert not isinstance(merged, UnmergeableSelectors)
            common = merged
    return common


def _collect_config(
    allocation_request: AllocationRequest, claim_index: int, picks: Sequence[Pick]
) -> tuple[DeviceAllocationConfiguration, ...]:
    """Collect the configuration of the classes, then of the claim, for the chosen alternatives only."""
    claim = allocation_request.claims[claim_index]
    chosen = {pick.point.choice.index: pick.point.alternative for pick in picks}
    alternatives = [
        chosen[choice.index]
        for choice in allocation_request.choices
        if choice.claim_index == claim_index and choice.index in chosen
    ]
    requests = len(claim.spec.devices.requests)

    def scope(names: tuple[str, ...]) -> tuple[str, ...]:
        """No names where they cover every request as it was chosen."""
        covered = sum(
            alternative.name in names or alternative.request in names for alternative in alternatives
        )
        return () if covered == requests else names

    found: list[DeviceAllocationConfiguration] = []
    for class_name in dict.fromkeys(alternative.class_name for alternative in alternatives):
        named = scope(
            tuple(alternative.name for alternative in alternatives if alternative.class_name == class_name)
        )
        found += (
            DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque)
            for config in allocation_request.classes[class_name].spec.config
        )
    names = {alternative.name for alternative in alternatives} | {
        alternative.request for alternative in alternatives
    }
    found += (
        DeviceAllocationConfiguration(
            source="FromClaim", requests=scope(config.requests), opaque=config.opaque
        )
        for config in claim.spec.devices.config
        if not config.requests or not names.isdisjoint(config.requests)
    )
    return tuple(found)
