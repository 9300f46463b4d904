"""What is written around the devices: copied fields, node selector, configuration.

Configuration has an order of its own, which drivers rely on, so it is compared as a list: classes in the
order their first request stands in the claim, then the claim. Node selectors are compared as sets of
requirements.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.allocator.verify.claim_case import Case, Part
from dray.allocator.verify.findings import Finding, Rule
from dray.api.resource import DeviceAllocationConfiguration
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement

Requirement = tuple[str, str, str, frozenset[str]]
"""Field or label, key, operator, values."""


def fields_are_copied(case: Case) -> Iterator[Finding]:
    """Results carry the tolerations of their request and the binding conditions of their device."""
    for part in case.parts:
        lent, result = case.lent(part), part.result
        if lent is None or part.ask is None:
            continue
        pairs = {
            "tolerations": (result.tolerations, part.ask.tolerations),
            "bindingConditions": (result.binding_conditions, lent.device.binding_conditions),
            "bindingFailureConditions": (
                result.binding_failure_conditions,
                lent.device.binding_failure_conditions,
            ),
        }
        for field, (found, wanted) in pairs.items():
            if found != wanted:
                yield case.finding(Rule.COPIES, f"device {part}: `{field}` is not what it should be")


def node_selector_fits(case: Case) -> Iterator[Finding]:
    """The allocation is bound to the nodes where all of its devices can be used, this one among them."""
    lent = [one for part in case.parts if (one := case.lent(part)) is not None]
    tangled = [one for one in lent if one.selector and len(one.selector.node_selector_terms) > 1]
    for one in tangled:
        yield case.finding(Rule.NODE_SELECTOR, f"device {one} has a node selector of several terms")
    if tangled:
        return
    name = case.given.node.metadata.name
    wanted: frozenset[Requirement] = frozenset()
    if any(one.is_local for one in lent):
        wanted = frozenset({("field", "metadata.name", "In", frozenset({name}))})
    else:
        for one in lent:
            wanted |= _requirements(one.selector)
    found = case.allocation.node_selector
    if _requirements(found) != wanted or (found is not None and len(found.node_selector_terms) != 1):
        text = f"its node selector is not that of its devices on node `{name}`"
        yield case.finding(Rule.NODE_SELECTOR, text)


def _requirements(selector: NodeSelector | None) -> frozenset[Requirement]:
    def of(kind: str, items: tuple[NodeSelectorRequirement, ...]) -> set[Requirement]:
        return {(kind, item.key, item.operator, frozenset(item.values)) for item in items}

    found: set[Requirement] = set()
    for term in selector.node_selector_terms if selector is not None else ():
        found |= of("label", term.match_expressions) | of("field", term.match_fields)
    return frozenset(found)


def config_is_due(case: Case) -> Iterator[Finding]:
    """Drivers get the configuration of the classes and of the claim for what was chosen, and nothing else."""
    if case.allocation.devices.config != tuple(_config(case)):
        yield case.finding(Rule.CONFIG, "its configuration is not that of its classes and its claim")


def _config(case: Case) -> Iterator[DeviceAllocationConfiguration]:
    order = [request.name for request in case.claim.spec.devices.requests]
    chosen: dict[str, Part] = {part.request: part for part in case.parts if part.ask is not None}
    mine = [chosen[name] for name in order if name in chosen]
    classes = {item.metadata.name: item for item in case.given.classes}

    def covering(parts: list[Part], names: tuple[str, ...]) -> tuple[str, ...]:
        """No names where these are all there is."""
        return () if {part.request for part in parts} == set(order) else names

    for name in dict.fromkeys(part.ask.device_class_name for part in mine if part.ask is not None):
        using = [part for part in mine if part.ask is not None and part.ask.device_class_name == name]
        for config in classes[name].spec.config if name in classes else ():
            named = covering(using, tuple(part.result.request for part in using))
            yield DeviceAllocationConfiguration(source="FromClass", requests=named, opaque=config.opaque)
    for said in case.claim.spec.devices.config:
        using = [p for p in mine if {p.request, p.result.request}.intersection(said.requests)]
        if using or not said.requests:
            named = covering(using, said.requests)
            yield DeviceAllocationConfiguration(source="FromClaim", requests=named, opaque=said.opaque)


RULES = (fields_are_copied, node_selector_fits, config_is_due)
"""Every rule about what is written around the devices."""
