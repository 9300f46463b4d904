"""A solution of the model as allocations: copied fields, node selector, configuration."""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import ModelAbortError, ModelCase
from dray.simulation.vectors.reference.model_rules import ModelPick
from dray.values.node_selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    build_node_name_selector,
)
from dray.values.quantity import Quantity, QuantityForm


def build_results(case: ModelCase, picks: Sequence[ModelPick]) -> tuple[AllocationResult, ...]:
    """One allocation per claim."""
    found = []
    for number in range(len(case.vector.claims)):
        own = [pick for pick in picks if pick.alternative.claim_index == number]
        devices = DeviceAllocationResult(
            results=tuple(_build_result(case, pick) for pick in own),
            config=tuple(_collect_config(case, number, own)),
        )
        found.append(AllocationResult(devices=devices, node_selector=_build_node_selector(case, own)))
    return tuple(found)


def _build_result(case: ModelCase, pick: ModelPick) -> DeviceRequestAllocationResult:
    candidate, spec = pick.candidate, pick.alternative.spec
    gated = not case.is_gate_enabled("DRADeviceTaints") and case.departs(Departure.TOLERATIONS_OFF)
    waits = case.is_gate_enabled("DRADeviceBindingConditions")
    amounts = {
        name: Quantity(amount, _get_form(candidate.device.capacity[name].value))
        for name, amount in (pick.consumed or {}).items()
    }
    return DeviceRequestAllocationResult(
        request=pick.alternative.name,
        driver=candidate.path[0],
        pool=candidate.path[1],
        device=candidate.path[2],
        admin_access=pick.alternative.admin or None,
        tolerations=() if gated else spec.tolerations,
        binding_conditions=candidate.device.binding_conditions if waits else (),
        binding_failure_conditions=candidate.device.binding_failure_conditions if waits else (),
        share_id=None if pick.consumed is None else "any",
        consumed_capacity=amounts,
    )


def _get_form(amount: Quantity | None) -> QuantityForm:
    return QuantityForm.DECIMAL if amount is None else amount.form


def _build_node_selector(case: ModelCase, picks: Sequence[ModelPick]) -> NodeSelector | None:
    """This node when a device is only here; otherwise every requirement of every device, each once."""
    selectors = []
    for pick in picks:
        holder = pick.candidate.node_selection
        if holder.node_name or pick.candidate.device.binds_to_node:
            return build_node_name_selector(case.vector.node.metadata.name)
        if holder.node_selector is not None and not holder.all_nodes:
            # Kubernetes looks at the devices in order, so one that is only here ends this before or after.
            if len(holder.node_selector.node_selector_terms) != 1:
                raise ModelAbortError("term")
            selectors.append(holder.node_selector)
    if not selectors:
        return None
    terms = [selector.node_selector_terms[0] for selector in selectors]
    return NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(
                match_expressions=_remove_duplicates(
                    [item for term in terms for item in term.match_expressions]
                ),
                match_fields=_remove_duplicates([item for term in terms for item in term.match_fields]),
            ),
        )
    )


def _remove_duplicates(items: Sequence[NodeSelectorRequirement]) -> tuple[NodeSelectorRequirement, ...]:
    kept: dict[tuple[str, str, frozenset[str]], NodeSelectorRequirement] = {}
    for item in items:
        kept.setdefault((item.key, item.operator, frozenset(item.values)), item)
    return tuple(kept.values())


def _collect_config(
    case: ModelCase, number: int, picks: Sequence[ModelPick]
) -> list[DeviceAllocationConfiguration]:
    """Configuration of the classes, once each in order of use, then of the claim."""
    claim = case.vector.claims[number]
    chosen = {pick.alternative.request: pick.alternative for pick in picks}
    alternatives = [chosen[request.name] for request in claim.spec.devices.requests if request.name in chosen]
    every = len(claim.spec.devices.requests)

    def scope(names: tuple[str, ...]) -> tuple[str, ...]:
        covered = sum(
            alternative.name in names or alternative.request in names for alternative in alternatives
        )
        return () if covered == every else names

    found = []
    for name in dict.fromkeys(alternative.spec.device_class_name for alternative in alternatives):
        users = [alternative for alternative in alternatives if alternative.spec.device_class_name == name]
        for config in users[0].device_class.spec.config:
            requests = scope(tuple(alternative.name for alternative in users))
            found.append(
                DeviceAllocationConfiguration(source="FromClass", requests=requests, opaque=config.opaque)
            )
    for own in claim.spec.devices.config:
        if not own.requests or any(
            alternative.name in own.requests or alternative.request in own.requests
            for alternative in alternatives
        ):
            found.append(
                DeviceAllocationConfiguration(
                    source="FromClaim", requests=scope(own.requests), opaque=own.opaque
                )
            )
    return found
