"""Conversion of allocated claims of the API into the claims that driver authors see.

Theory of operation: only the results and the configuration of one driver are read from an allocation. A
result of a request with alternatives names `request/subrequest`; authors get both parts. Configuration
applies to all requests, to a request with all its alternatives, or to one alternative; the configuration of
the class comes before that of the claim, and the driver's schema decodes the parameters.

Rules for this file: pure. A claim that cannot be prepared raises `PrepareRefusedError` with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from dray.claims.claim_names import POD_CLAIM_NAME_ANNOTATION
from dray.driver.base import Claim, ClassicClaim, Consumer, Got, Parameters, Setting
from dray.driver.parameters import InvalidParametersError, ParameterProblem, decode_parameters
from dray.errors import DrayError
from dray.values.node_selectors import NODE_NAME_FIELD, NodeSelector

_SOURCES: Final = {"FromClass": "class", "FromClaim": "claim"}


class PrepareRefusedError(DrayError):
    """A claim cannot be prepared or unprepared; the message says why."""


class PrepareDelayedError(PrepareRefusedError):
    """A claim cannot be prepared now, and may be able to be soon.

    Trying again is worthwhile for `max_wait_seconds` since the call, and useless before `min_wait_seconds`.
    """

    def __init__(
        self, message: str, *, min_wait_seconds: float = 0.0, max_wait_seconds: float = math.inf
    ) -> None:
        super().__init__(message)
        self.min_wait_seconds = min_wait_seconds
        self.max_wait_seconds = max_wait_seconds


STALE_READ_SECONDS: Final = 3.0
"""For how long a claim may look as it was before an agent saw it: an API server may lag behind another."""


def build_claim(stored: ResourceClaim, driver: str, node: str, schemas: Parameters) -> Claim:
    """Convert an allocated claim for a driver on a node; raises `PrepareRefusedError` when it cannot be
    prepared there.
    """
    allocation = stored.status.allocation
    if allocation is None:
        raise PrepareDelayedError("it is not allocated", max_wait_seconds=STALE_READ_SECONDS)
    elsewhere = _find_other_node(allocation.node_selector, node)
    if elsewhere:
        raise PrepareRefusedError(f"it is allocated for node `{elsewhere}`, this is `{node}`")
    results = [each for each in allocation.devices.results if each.driver == driver]
    if not results:
        raise PrepareRefusedError("its allocation has no device of this driver")
    settings = tuple(_collect_settings(allocation, driver, schemas))
    return Claim(
        namespace=stored.metadata.namespace,
        name=stored.metadata.name,
        uid=stored.metadata.uid,
        devices=tuple(_build_got(result, settings) for result in results),
        reserved_for=tuple(
            Consumer(each.name, each.uid, each.resource) for each in stored.status.reserved_for
        ),
        pod_claim=stored.metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, ""),
    )


def build_classic_claim(stored: ClassicResourceClaim, driver: str, schemas: Parameters) -> ClassicClaim:
    """Convert an allocated classic claim."""
    if stored.status.driver_name != driver or stored.status.phase != "Allocated":
        raise PrepareDelayedError("it is not allocated by this driver", max_wait_seconds=STALE_READ_SECONDS)
    raw = bytes(stored.spec.parameters)
    try:
        parameters = (
            decode_parameters(schemas, raw, "spec.parameters") if raw and schemas is not None else None
        )
    except InvalidParametersError as wrong:
        raise PrepareRefusedError(str(wrong)) from None
    return ClassicClaim(
        namespace=stored.metadata.namespace,
        name=stored.metadata.name,
        uid=stored.metadata.uid,
        attributes=stored.status.attributes,
        parameters=parameters,
        written=raw,
    )


def _find_other_node(selector: NodeSelector | None, node: str) -> str:
    """Return the node that an allocation is for when it is another node, else an empty string.

    Labels are ignored: they may have changed since, and the pod is on this node all the same.
    """
    terms = () if selector is None else selector.node_selector_terms
    if len(terms) != 1:
        return ""
    for item in terms[0].match_fields:
        if item.key == NODE_NAME_FIELD and item.operator == "In" and node not in item.values:
            return ", ".join(item.values)
    return ""


# --- configuration ---


def _collect_settings(
    allocation: AllocationResult, driver: str, schemas: Parameters
) -> Iterator[tuple[tuple[str, ...], Setting]]:
    """Yield the requests and the setting of each configuration for a driver, those of the class first."""
    problems: list[ParameterProblem] = []
    numbered = list(enumerate(allocation.devices.config))
    for source in _SOURCES:
        for position, each in numbered:
            if each.source != source or each.opaque is None or each.opaque.driver != driver:
                continue
            path = f"config[{position}].opaque.parameters"
            try:
                yield each.requests, _build_setting(each, schemas, path)
            except InvalidParametersError as wrong:
                problems += wrong.problems
    if problems:
        raise PrepareRefusedError("; ".join(map(str, problems)))


def _build_setting(each: DeviceAllocationConfiguration, schemas: Parameters, path: str) -> Setting:
    assert each.opaque is not None
    written = bytes(each.opaque.parameters) or b"null"
    return Setting(_SOURCES[each.source], decode_parameters(schemas, written, path), written)


def _build_got(
    result: DeviceRequestAllocationResult, settings: tuple[tuple[tuple[str, ...], Setting], ...]
) -> Got:
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
