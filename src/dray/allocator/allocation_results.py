"""A solution becomes allocations: one result per claim, as the API writes them.

Names come back here: candidates are looked up in the view they were found in. Share ids are given by
the caller, one call per share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.inventory.device_inventory import NodeView
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
    """One allocation per claim, in the order of the claims."""
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
    shelf, position = view.locate_device(pick.candidate)
    content = shelf.profiles[position]
    device = content.device
    want = pick.point.alternative
    return DeviceRequestAllocationResult(
        request=want.name,
        driver=shelf.pool[0],
        pool=shelf.pool[1],
        device=shelf.names[position],
        admin_access=want.admin or None,
        tolerations=want.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=new_share_id() if pick.consumed is not None else None,
        consumed_capacity=dict(content.to_quantities(pick.consumed)) if pick.consumed else {},
    )


def _build_node_selector(view: NodeView, picks: Sequence[Pick]) -> NodeSelector | None:
    """Where the devices can be used together: this node, or what all selectors have in common."""
    common: NodeSelector | None = None
    for pick in picks:
        # Not the shape's: nodes of one shape may reach their devices in different ways.
        shelf, position = view.locate_device(pick.candidate)
        reach = shelf.node_scopes[position]
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
    """Configuration of the classes, then of the claim; only of what was chosen."""
    claim = allocation_request.claims[claim_index]
    chosen = {pick.point.choice.index: pick.point.alternative for pick in picks}
    wants = [
        chosen[choice.index]
        for choice in allocation_request.choices
        if choice.claim_index == claim_index and choice.index in chosen
    ]
    requests = len(claim.spec.devices.requests)

    def scope(names: tuple[str, ...]) -> tuple[str, ...]:
        """No names where they cover every request as it was chosen."""
        covered = sum(want.name in names or want.request in names for want in wants)
        return () if covered == requests else names

    found: list[DeviceAllocationConfiguration] = []
    for class_name in dict.fromkeys(want.class_name for want in wants):
        named = scope(tuple(want.name for want in wants if want.class_name == class_name))
        found += (
            DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque)
            for config in allocation_request.classes[class_name].spec.config
        )
    names = {want.name for want in wants} | {want.request for want in wants}
    found += (
        DeviceAllocationConfiguration(source="FromClaim", requests=scope(said.requests), opaque=said.opaque)
        for said in claim.spec.devices.config
        if not said.requests or not names.isdisjoint(said.requests)
    )
    return tuple(found)
