"""Limit ranges: the resources that containers get from them, and what they refuse.

Rules for this file: it works on documents; amounts that cannot be parsed are left for validation to refuse.
The texts of refusals are those of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dray.api.core.pod_amounts import Amounts, iterate_resource_holders, read_amounts, sum_containers
from dray.values.quantity import NANOS_PER_UNIT, ZERO, Quantity

Document = dict[str, Any]

ANNOTATION: Final = "kubernetes.io/limit-ranger"
_TITLES: Final = (("containers", "container"), ("initContainers", "init container"))
_DEFAULTS: Final = (("requests", "defaultRequest", "request"), ("limits", "default", "limit"))


def apply_limit_range(pod: Document, limit_range: Mapping[str, Any]) -> Document:
    """A pod whose containers have the default requests and limits of a limit range."""
    defaults = _merge_defaults(limit_range)
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not any(defaults.values()):
        return pod
    changed: Document = {}
    notes: list[str] = []
    for place, title in _TITLES:
        containers = spec.get(place)
        if isinstance(containers, list):
            changed[place] = [_complete_container(each, title, defaults, notes) for each in containers]
    if not notes:
        return pod
    metadata = pod["metadata"]
    note = {ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}"}
    annotations = {**(metadata.get("annotations") or {}), **note}
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, **changed}}


def _merge_defaults(limit_range: Mapping[str, Any]) -> dict[str, Document]:
    """The default requests and limits of containers, of all items together."""
    merged: dict[str, Document] = {"requests": {}, "limits": {}}
    for item in _list_items(limit_range, "Container"):
        for field, source, _ in _DEFAULTS:
            given = item.get(source)
            merged[field] |= given if isinstance(given, dict) else {}
    return merged


def _complete_container(
    container: Any, title: str, defaults: Mapping[str, Document], notes: list[str]
) -> Any:
    if not isinstance(container, dict):
        return container
    resources = container.get("resources")
    complete = dict(resources) if isinstance(resources, dict) else {}
    for field, _, word in _DEFAULTS:
        given = complete.get(field)
        own = given if isinstance(given, dict) else {}
        added = {name: amount for name, amount in defaults[field].items() if name not in own}
        if added:
            complete[field] = {**own, **added}
            notes.append(f"{', '.join(sorted(added))} {word} for {title} {container.get('name', '')}")
    return {**container, "resources": complete}


def list_pod_violations(pod: Mapping[str, Any], limit_range: Mapping[str, Any]) -> Iterator[str]:
    """Why a limit range refuses a pod."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    of_containers = [
        (read_amounts(each.get("resources"), "requests"), read_amounts(each.get("resources"), "limits"))
        for place, each in sorted(iterate_resource_holders(spec), key=lambda found: found[0] != "containers")
    ]
    whole = (_sum_pod(spec, "requests"), _sum_pod(spec, "limits"))
    for item in _list_items(limit_range):
        if item.get("type") == "Container":
            for requests, limits in of_containers:
                yield from _list_violations(item, "Container", requests, limits)
        elif item.get("type") == "Pod":
            yield from _list_violations(item, "Pod", *whole)


def _sum_pod(spec: Document, field: str) -> Amounts:
    """The amounts of a pod: its own, and those of its containers for other resources."""
    return {**sum_containers(spec, field), **read_amounts(spec.get("resources"), field)}


def list_claim_violations(claim: Mapping[str, Any], limit_range: Mapping[str, Any]) -> Iterator[str]:
    """Why a limit range refuses a claim for a volume."""
    spec = claim.get("spec")
    if not isinstance(spec, dict):
        return
    requests = read_amounts(spec.get("resources"), "requests")
    kind = "PersistentVolumeClaim"
    for item in _list_items(limit_range, kind):
        for name, least in read_amounts(item, "min").items():
            yield from _check_minimum(kind, name, least, requests.get(name), None)
        for name, most in read_amounts(item, "max").items():
            yield from _check_maximum(kind, name, most, (("request", requests.get(name)),))


def _list_items(limit_range: Mapping[str, Any], kind: str = "") -> list[Document]:
    spec = limit_range.get("spec")
    items = spec.get("limits") if isinstance(spec, dict) else None
    found = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    return [each for each in found if not kind or each.get("type") == kind]


def _list_violations(item: Document, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in read_amounts(item, "min").items():
        yield from _check_minimum(kind, name, least, requests.get(name), limits.get(name))
    for name, most in read_amounts(item, "max").items():
        given = (("limit", limits.get(name)), ("request", requests.get(name)))
        yield from _check_maximum(kind, name, most, given)
    for name, ratio in read_amounts(item, "maxLimitRequestRatio").items():
        yield from _check_ratio(kind, name, ratio, requests.get(name), limits.get(name))


def _check_minimum(
    kind: str, name: str, least: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    rule = f"minimum {name} usage per {kind} is {least}"
    if request is None:
        yield f"{rule}.  No request is specified"
    elif request < least:
        yield f"{rule}, but request is {request}"
    elif limit is not None and limit < least:
        yield f"{rule}, but limit is {limit}"


def _check_maximum(
    kind: str, name: str, most: Quantity, given: tuple[tuple[str, Quantity | None], ...]
) -> Iterator[str]:
    """The first of the given amounts is required."""
    rule = f"maximum {name} usage per {kind} is {most}"
    if given[0][1] is None:
        yield f"{rule}.  No {given[0][0]} is specified"
        return
    for word, amount in given:
        if amount is not None and amount > most:
            yield f"{rule}, but {word} is {amount}"
            return


def _check_ratio(
    kind: str, name: str, most: Quantity, request: Quantity | None, limit: Quantity | None
) -> Iterator[str]:
    rule = f"{name} max limit to request ratio per {kind} is {most}"
    if request is None or request == ZERO:
        yield f"{rule}, but no request is specified or request is 0"
    elif limit is None or limit == ZERO:
        yield f"{rule}, but no limit is specified or limit is 0"
    elif limit.nanos * NANOS_PER_UNIT > most.nanos * request.nanos:
        yield f"{rule}, but provided ratio is {limit.nanos / request.nanos:f}"
