"""Rules of the choice which nodes reach something: a slice, or a single device."""

from __future__ import annotations

from dray.api.fields import Path, invalid, required
from dray.api.resource import Device, ResourceSliceSpec
from dray.api.validation.field_rules import Errors, misnamed, one_term
from dray.values.names import dns_subdomain


def node_choice(holder: Device | ResourceSliceSpec, expected: str, path: Path) -> Errors:
    """One way, and only one, to say which nodes are meant; a field that is set says something."""
    chosen: list[str] = []
    if holder.node_name:
        chosen.append("nodeName")
        if faults := dns_subdomain(holder.node_name):
            yield from misnamed(faults, path.field("nodeName"))
    elif holder.node_name is not None:
        yield invalid(path.field("nodeName"), "", "must be either unset or set to a non-empty string")
    if holder.node_selector is not None:
        chosen.append("nodeSelector")
        yield from one_term(holder.node_selector, path.field("nodeSelector"))
    for field, switch in _switches(holder):
        if switch:
            chosen.append(field)
        elif switch is not None:
            yield invalid(path.field(field), switch, "must be either unset or set to true")
    if not chosen:
        yield required(path, expected)
    elif len(chosen) > 1:
        found = ", ".join(f"`{field}`" for field in chosen)
        yield invalid(path, f"{{{found}}}", f"{expected}, but multiple fields are set")


def _switches(holder: Device | ResourceSliceSpec) -> tuple[tuple[str, bool | None], ...]:
    everywhere = ("allNodes", holder.all_nodes)
    if isinstance(holder, Device):
        return (everywhere,)
    return everywhere, ("perDeviceNodeSelection", holder.per_device_node_selection)
