"""From a claim of the API to what a driver's author sees of it.

Theory of operation: of an allocation the results and the configuration of one driver count. A result of a
request with alternatives names `request/subrequest`; authors get both parts. Configuration is for all
requests, for a request (then for all its alternatives), or for one alternative; that of the class comes
before that of the claim, and parameters are read by the driver's schema.

Rules for this file: pure. What cannot be prepared is a `Refused` that says why in words for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.api.classic import ClassicClaim as StoredClassic
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from dray.driver.base import Claim, ClassicClaim, Consumer, Got, Parameters, Setting
from dray.driver.parameters import BadParameters, Problem, decode
from dray.errors import DrayError
from dray.values.node_selectors import NODE_NAME, NodeSelector

_SOURCES: Final = {"FromClass": "class", "FromClaim": "claim"}


class Refused(DrayError):  # noqa: N818 - what is the case
    """A claim that cannot be prepared or given back, and why."""


def claim_of(stored: ResourceClaim, driver: str, node: str, schemas: Parameters) -> Claim:
    """What a driver on a node has to do for a claim; `Refused` when that is nothing it could do."""
    allocation = stored.status.allocation
    if allocation is None:
        raise Refused("it is not allocated")
    elsewhere = _elsewhere(allocation.node_selector, node)
    if elsewhere:
        raise Refused(f"it is allocated for node `{elsewhere}`, this is `{node}`")
    results = [each for each in allocation.devices.results if each.driver == driver]
    if not results:
        raise Refused("its allocation has no device of this driver")
    settings = tuple(_settings(allocation, driver, schemas))
    return Claim(
        namespace=stored.metadata.namespace,
        name=stored.metadata.name,
        uid=stored.metadata.uid,
        devices=tuple(_got(result, settings) for result in results),
        reserved_for=tuple(
            Consumer(each.name, each.uid, each.resource) for each in stored.status.reserved_for
        ),
    )


def classic_claim_of(stored: StoredClassic, driver: str, schemas: Parameters) -> ClassicClaim:
    """What a driver has to do for a classic claim."""
    if stored.status.driver_name != driver or stored.status.phase != "Allocated":
        raise Refused("it is not allocated by this driver")
    raw = bytes(stored.spec.parameters)
    try:
        parameters = decode(schemas, raw, "spec.parameters") if raw and schemas is not None else None
    except BadParameters as wrong:
        raise Refused(str(wrong)) from None
    return ClassicClaim(
        namespace=stored.metadata.namespace,
        name=stored.metadata.name,
        uid=stored.metadata.uid,
        attributes=stored.status.attributes,
        parameters=parameters,
        written=raw,
    )


def _elsewhere(selector: NodeSelector | None, node: str) -> str:
    """The one node that an allocation is for, when it is another.

    Labels are not asked: they may have changed since, and the pod is here all the same.
    """
    terms = () if selector is None else selector.node_selector_terms
    if len(terms) != 1:
        return ""
    for item in terms[0].match_fields:
        if item.key == NODE_NAME and item.operator == "In" and node not in item.values:
            return ", ".join(item.values)
    return ""


# --- configuration ---


def _settings(
    allocation: AllocationResult, driver: str, schemas: Parameters
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """The configuration for a driver: for which requests, and what; that of the class first."""
    problems: list[Problem] = []
    numbered = list(enumerate(allocation.devices.config))
    for source in _SOURCES:
        for position, each in numbered:
            if each.source != source or each.opaque is None or each.opaque.driver != driver:
                continue
            place = f"config[{position}].opaque.parameters"
            try:
                yield each.requests, _setting(each, schemas, place)
            except BadParameters as wrong:
                problems += wrong.problems
    if problems:
        raise Refused("; ".join(map(str, problems)))


def _setting(each: DeviceAllocationConfiguration, schemas: Parameters, place: str) -> Setting:
    assert each.opaque is not None
    written = bytes(each.opaque.parameters) or b"null"
    return Setting(_SOURCES[each.source], decode(schemas, written, place), written)


def _got(result: DeviceRequestAllocationResult, settings: tuple[tuple[tuple[str, ...], Setting], ...]) -> Got:
    request, _, subrequest = result.request.partition("/")
    return Got(
        request=request,
        subrequest=subrequest,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id or "",
        consumed=result.consumed_capacity,
        admin=result.admin_access is True,
        config=tuple(
            setting
            for requests, setting in settings
            if not requests or request in requests or result.request in requests
        ),
    )
