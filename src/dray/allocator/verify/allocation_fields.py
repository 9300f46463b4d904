"""Rules for the other fields of an allocation: copied fields, node selector, configuration.

Configuration has an order of its own, which drivers rely on, so it is compared as a list: classes in the
order their first request stands in the claim, then the claim. Node selectors are compared as sets of
requirements.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.allocator.verify.claim_case import ClaimCase, ResultPart
from dray.allocator.verify.findings import AllocationFinding, AllocationRule
from dray.api.resource import DeviceAllocationConfiguration
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement

Requirement = tuple[str, str, str, frozenset[str]]
"""Field or label, key, operator, values."""


def check_copied_fields(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Results carry the tolerations of their request and the binding conditions of their device."""
    for part in case.parts:
        lent, result = case.find_device(part), part.result
        if lent is None or part.spec is None:
            continue
        pairs = {
            "tolerations": (result.tolerations, part.spec.tolerations),
            "bindingConditions": (result.binding_conditions, lent.device.binding_conditions),
            "bindingFailureConditions": (
                result.binding_failure_conditions,
                lent.device.binding_failure_conditions,
            ),
        }
        for field, (found, wanted) in pairs.items():
            if found != wanted:
                yield case.build_finding(
                    AllocationRule.COPIES, f"device {part}: `{field}` is not what it should be"
                )


def check_node_selector(case: ClaimCase) -> Iterator[AllocationFinding]:
    """The allocation is bound to the nodes where all of its devices can be used, this one among them."""
    lent = [one for part in case.parts if (one := case.find_device(part)) is not None]
    tangled = [one for one in lent if one.selector and len(one.selector.node_selector_terms) > 1]
    for one in tangled:
        yield case.build_finding(
            AllocationRule.NODE_SELECTOR, f"device {one} has a node selector of several terms"
        )
    if tangled:
        return
    name = case.inputs.node.metadata.name
    wanted: frozenset[Requirement] = frozenset()
    if any(one.is_local for one in lent):
        wanted = frozenset({("field", "metadata.name", "In", frozenset({name}))})
    else:
        for one in lent:
            wanted |= _collect_requirements(one.selector)
    found = case.allocation.node_selector
    if _collect_requirements(found) != wanted or (found is not None and len(found.node_selector_terms) != 1):
        text = f"its node selector is not that of its devices on node `{name}`"
        yield case.build_finding(AllocationRule.NODE_SELECTOR, text)


def _collect_requirements(selector: NodeSelector | None) -> frozenset[Requirement]:
    def of(kind: str, items: tuple[NodeSelectorRequirement, ...]) -> set[Requirement]:
        return {(kind, item.key, item.operator, frozenset(item.values)) for item in items}

    found: set[Requirement] = set()
    for term in selector.node_selector_terms if selector is not None else ():
        found |= of("label", term.match_expressions) | of("field", term.match_fields)
    return frozenset(found)


def check_config(case: ClaimCase) -> Iterator[AllocationFinding]:
    """Drivers get the configuration of the classes and of the claim for what was chosen, and nothing else."""
    if case.allocation.devices.config != tuple(_collect_config(case)):
        yield case.build_finding(
            AllocationRule.CONFIG, "its configuration is not that of its classes and its claim"
        )


def _collect_config(case: ClaimCase) -> Iterator[DeviceAllocationConfiguration]:
    order = [request.name for request in case.claim.spec.devices.requests]
    chosen: dict[str, ResultPart] = {part.request: part for part in case.parts if part.spec is not None}
    mine = [chosen[name] for name in order if name in chosen]
    classes = {item.metadata.name: item for item in case.inputs.classes}

    def find_covering(parts: list[ResultPart], names: tuple[str, ...]) -> tuple[str, ...]:
        """No names where the chosen alternatives are all requests."""
        return () if {part.request for part in parts} == set(order) else names

    for name in dict.fromkeys(part.spec.device_class_name for part in mine if part.spec is not None):
        using = [part for part in mine if part.spec is not None and part.spec.device_class_name == name]
        for class_config in classes[name].spec.config if name in classes else ():
            named = find_covering(using, tuple(part.result.request for part in using))
            yield DeviceAllocationConfiguration(
                source="FromClass", requests=named, opaque=class_config.opaque
            )
    for claim_config in case.claim.spec.devices.config:
        using = [p for p in mine if {p.request, p.result.request}.intersection(claim_config.requests)]
        if using or not claim_config.requests:
            named = find_covering(using, claim_config.requests)
            yield DeviceAllocationConfiguration(
                source="FromClaim", requests=named, opaque=claim_config.opaque
            )


RULES = (check_copied_fields, check_node_selector, check_config)
"""Every rule of this module."""
