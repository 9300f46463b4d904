"""Validation of node selection: the nodes that reach a slice, or a single device."""

from __future__ import annotations

from dray.api.fields import FieldPath, invalid, required
from dray.api.resource import Device, ResourceSliceSpec
from dray.api.validation.field_rules import FieldErrors, report_name_faults, validate_single_term
from dray.values.names import check_dns_subdomain


def validate_node_selection(
    holder: Device | ResourceSliceSpec, expected: str, path: FieldPath
) -> FieldErrors:
    """Check that exactly one field selects the nodes; a field that is set must have a non-zero value."""
    chosen: list[str] = []
    if holder.node_name:
        chosen.append("nodeName")
        if faults := check_dns_subdomain(holder.node_name):
            yield from report_name_faults(faults, path.child("nodeName"))
    elif holder.node_name is not None:
        yield invalid(path.child("nodeName"), "", "must be either unset or set to a non-empty string")
    if holder.node_selector is not None:
        chosen.append("nodeSelector")
        yield from validate_single_term(holder.node_selector, path.child("nodeSelector"))
    for field, switch in _list_boolean_fields(holder):
        if switch:
            chosen.append(field)
        elif switch is not None:
            yield invalid(path.child(field), switch, "must be either unset or set to true")
    if not chosen:
        yield required(path, expected)
    elif len(chosen) > 1:
        found = ", ".join(f"`{field}`" for field in chosen)
        yield invalid(path, f"{{{found}}}", f"{expected}, but multiple fields are set")


def _list_boolean_fields(holder: Device | ResourceSliceSpec) -> tuple[tuple[str, bool | None], ...]:
    everywhere = ("allNodes", holder.all_nodes)
    if isinstance(holder, Device):
        return (everywhere,)
    return everywhere, ("perDeviceNodeSelection", holder.per_device_node_selection)
