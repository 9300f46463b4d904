"""A solution becomes allocations: one result per claim, as the API writes them.

Names come back here: candidates are looked up in the view they were found in. Share ids are given by
the caller, one call per share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.allocator.inventory.device_inventory import View
from dray.allocator.requests import Ask
from dray.allocator.search.trace import Pick
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dray.values.node_selectors import NodeSelector, Unmergeable


def assemble(
    ask: Ask, view: View, picks: Sequence[Pick], *, new_share_id: Callable[[], str]
) -> tuple[AllocationResult, ...]:
    """One allocation per claim, in the order of the claims."""
    allocations = []
    for c in range(len(ask.claims)):
        own = [pick for pick in picks if pick.point.choice.claim == c] if len(ask.claims) > 1 else picks
        results = tuple([_result(view, pick, new_share_id) for pick in own])
        configured = ask.configured or ask.claims[c].spec.devices.config
        devices = DeviceAllocationResult(results=results, config=_config(ask, c, own) if configured else ())
        allocations.append(AllocationResult(devices=devices, node_selector=_selector(view, own)))
    return tuple(allocations)


def _result(view: View, pick: Pick, new_share_id: Callable[[], str]) -> DeviceRequestAllocationResult:
    shelf, position = view.device(pick.candidate)
    content = shelf.contents[position]
    device = content.device
    want = pick.point.want
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
        consumed_capacity=dict(content.written(pick.consumed)) if pick.consumed else {},
    )


def _selector(view: View, picks: Sequence[Pick]) -> NodeSelector | None:
    """Where the devices can be used together: this node, or what all selectors have in common."""
    common: NodeSelector | None = None
    for pick in picks:
        # Not the shape's: nodes of one shape may reach their devices in different ways.
        shelf, position = view.device(pick.candidate)
        reach = shelf.reaches[position]
        if reach.here_only:
            return view.this_node
        if reach.selector is not None and common is not reach.selector:
            merged = reach.selector if common is None else common.merged(reach.selector)
            # Selectors of several terms never get this far: their devices are refused.
            assert not isinstance(merged, Unmergeable)
            common = merged
    return common


def _config(ask: Ask, c: int, picks: Sequence[Pick]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Configuration of the classes, then of the claim; only of what was chosen."""
    claim = ask.claims[c]
    chosen = {pick.point.choice.index: pick.point.want for pick in picks}
    wants = [chosen[choice.index] for choice in ask.choices if choice.claim == c and choice.index in chosen]
    requests = len(claim.spec.devices.requests)

    def scope(names: tuple[str, ...]) -> tuple[str, ...]:
        """No names where they cover every request as it was chosen."""
        covered = sum(want.name in names or want.name.partition("/")[0] in names for want in wants)
        return () if covered == requests else names

    found: list[DeviceAllocationConfiguration] = []
    for class_name in dict.fromkeys(want.class_name for want in wants):
        named = scope(tuple(want.name for want in wants if want.class_name == class_name))
        found += (
            DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque)
            for config in ask.classes[class_name].spec.config
        )
    names = {want.name for want in wants} | {want.name.partition("/")[0] for want in wants}
    found += (
        DeviceAllocationConfiguration(source="FromClaim", requests=scope(said.requests), opaque=said.opaque)
        for said in claim.spec.devices.config
        if not said.requests or not names.isdisjoint(said.requests)
    )
    return tuple(found)
