"""Rules across devices (constraints) and between a device and a request (tolerations)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.api.resource import DeviceConstraint, DeviceTaint, DeviceToleration
from dray.simulation.vectors.reference.model_case import ModelCase
from dray.simulation.vectors.reference.pools import ModelCandidate
from dray.simulation.vectors.reference.requests import ModelAlternative


def tolerates(tolerations: Sequence[DeviceToleration], taint: DeviceTaint) -> bool:
    """Whether one of the tolerations is for the taint."""
    return any(
        toleration.effect in ("", None, taint.effect)
        and toleration.key in ("", None, taint.key)
        and (
            toleration.operator == "Exists"
            or (
                toleration.operator in ("", None, "Equal") and (toleration.value or "") == (taint.value or "")
            )
        )
        for toleration in tolerations
    )


def covers_request(constraint: DeviceConstraint, alternative: ModelAlternative) -> bool:
    """Whether a constraint is about a request, by its own name or by that of the alternative."""
    return (
        not constraint.requests
        or alternative.name in constraint.requests
        or alternative.request in constraint.requests
    )


def keeps_constraint(
    constraint: DeviceConstraint, candidates: Sequence[ModelCandidate], case: ModelCase
) -> bool:
    """Whether devices keep a constraint together."""
    attribute = constraint.match_attribute or constraint.distinct_attribute or ""
    values = [_collect_values(candidate, attribute) for candidate in candidates]
    if not all(values):
        return False
    if not case.is_gate_enabled("DRAListTypeAttributes"):
        return _keeps_as_scalars(constraint, candidates, values, attribute)
    if constraint.match_attribute is not None:
        return bool(set.intersection(*values))
    return all(values[i].isdisjoint(values[j]) for i in range(len(values)) for j in range(i))


def _keeps_as_scalars(
    constraint: DeviceConstraint,
    candidates: Sequence[ModelCandidate],
    values: Sequence[set[Any]],
    attribute: str,
) -> bool:
    """With lists off a list goes with no other value, whatever the constraint is."""
    if len(candidates) > 1 and any(_is_list(candidate, attribute) for candidate in candidates):
        return False
    pairs = [values[i] == values[j] for i in range(len(values)) for j in range(i)]
    return all(pairs) if constraint.match_attribute is not None else not any(pairs)


def _find_attribute(candidate: ModelCandidate, attribute: str) -> Any:
    """An attribute by its full name; without a domain it belongs to the driver."""
    driver = candidate.published_slice.spec.driver
    found = candidate.device.attributes.get(attribute)
    if found is None and attribute.startswith(f"{driver}/"):
        found = candidate.device.attributes.get(attribute[len(driver) + 1 :])
    return found


def _is_list(candidate: ModelCandidate, attribute: str) -> bool:
    found = _find_attribute(candidate, attribute)
    return found is not None and bool(found.is_list)


def _collect_values(candidate: ModelCandidate, attribute: str) -> set[tuple[str, Any]]:
    found = _find_attribute(candidate, attribute)
    held = found.get_typed_values() if found is not None else None
    return set() if held is None else {(held[0], value) for value in held[1]}
