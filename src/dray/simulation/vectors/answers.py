"""Answers of an allocator: in one form to compare them, in full to show them, and where two of them differ.

In the one form share ids are only present or absent, and the order of values in a node selector does not
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

import msgspec

from dray.api.json_text import write_json
from dray.api.resource import AllocationResult, DeviceRequestAllocationResult
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

_ANY_SHARE_ID = "any"


class AnswerKind(StrEnum):
    """How an attempt ended."""

    ALLOCATED = "allocated"
    REFUSED = "refused"
    INVALID_POOLS = "refused: invalid pools"
    FAULT = "fault"
    GAVE_UP = "gave up"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class AllocatorAnswer:
    """What came of a query.

    `about` is the device or pool that a fault names. `unknown` are fields of results that dray does not have.
    """

    kind: AnswerKind
    results: tuple[AllocationResult, ...] = ()
    text: str = ""
    about: str = ""
    unknown: frozenset[str] = frozenset()

    @property
    def summary(self) -> str:
        """The answer in a line: devices by request, or why there are none."""
        if self.kind is AnswerKind.ALLOCATED:
            return "; ".join(_format_line(result) for result in self.results) or "nothing asked"
        return f"{self.kind.value}: {self.text}" if self.text else self.kind.value

    def is_equal(self, other: AllocatorAnswer) -> bool:
        """Whether it is the same answer, as far as dray has fields for it; texts of faults do not count."""
        if self.kind is not other.kind or len(self.results) != len(other.results):
            return False
        pairs = zip(self.results, other.results, strict=True)
        return all(normalize_result(ours) == normalize_result(theirs) for ours, theirs in pairs)

    def render_lines(self) -> Iterator[str]:
        """The answer in full: devices with every field, configuration and node selector of each claim."""
        if self.kind is not AnswerKind.ALLOCATED:
            yield self.summary
            return
        for number, result in enumerate(self.results):
            count = len(result.devices.results)
            yield f"claim {number}: {count} device{'' if count == 1 else 's'}"
            for device in result.devices.results:
                yield f"  {_format_full(device)}"
            for config in result.devices.config:
                yield f"  config {write_json(config).decode()}"
            if result.node_selector is not None:
                yield f"  node selector {write_json(result.node_selector).decode()}"
        if self.unknown:
            yield f"fields dray does not have: {', '.join(sorted(self.unknown))}"


def list_differences(ours: AllocatorAnswer, recorded: AllocatorAnswer) -> Iterator[str]:
    """Where two answers differ, part by part."""
    if ours.kind is not recorded.kind:
        yield f"outcome: {recorded.kind.value} on record, {ours.kind.value} here"
        return
    if len(ours.results) != len(recorded.results):
        yield f"claims: {len(recorded.results)} on record, {len(ours.results)} here"
        return
    for number, (mine, theirs) in enumerate(zip(ours.results, recorded.results, strict=True)):
        yield from (
            f"claim {number}, {part}"
            for part in _list_differing_parts(normalize_result(mine), normalize_result(theirs))
        )
    if recorded.unknown:
        yield f"fields dray does not have: {', '.join(sorted(recorded.unknown))}"


def _list_differing_parts(mine: AllocationResult, theirs: AllocationResult) -> Iterator[str]:
    for position, (own, other) in enumerate(zip_longest(mine.devices.results, theirs.devices.results)):
        if own is None or other is None:
            yield f"device {position}: only {'on record' if own is None else 'here'}"
            continue
        different = list(_list_differing_fields(own, other))
        if different:
            yield f"device {position}: {', '.join(different)}"
    for name in _list_differing_fields(mine.devices, theirs.devices):
        if name != "results":
            yield name
    for name in _list_differing_fields(mine, theirs):
        if name != "devices":
            yield name


def _list_differing_fields(own: msgspec.Struct, other: msgspec.Struct) -> Iterator[str]:
    """The fields in which two structs of one kind differ, as they are written."""
    for field, name in zip(own.__struct_fields__, own.__struct_encode_fields__, strict=True):
        if getattr(own, field) != getattr(other, field):
            yield name


def normalize_result(result: AllocationResult) -> AllocationResult:
    """An allocation without what may differ: the text of share ids, the order in node selectors."""
    results = tuple(
        msgspec.structs.replace(
            device,
            share_id=None if device.share_id is None else _ANY_SHARE_ID,
            admin_access=device.admin_access or None,
        )
        for device in result.devices.results
    )
    devices = msgspec.structs.replace(result.devices, results=results)
    selector = None if result.node_selector is None else _sort_selector(result.node_selector)
    return msgspec.structs.replace(result, devices=devices, node_selector=selector)


def _sort_selector(selector: NodeSelector) -> NodeSelector:
    def sort_requirements(items: tuple[NodeSelectorRequirement, ...]) -> tuple[NodeSelectorRequirement, ...]:
        each = [msgspec.structs.replace(item, values=tuple(sorted(item.values))) for item in items]
        return tuple(sorted(each, key=lambda item: (item.key, item.operator, item.values)))

    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=sort_requirements(term.match_expressions),
                match_fields=sort_requirements(term.match_fields),
            )
            for term in selector.node_selector_terms
        )
    )


def _format_line(result: AllocationResult) -> str:
    """The devices of a claim in a line, with what shares consume."""
    shown = [_format_device(device) for device in result.devices.results]
    return " ".join(shown) or "no device"


def _format_device(device: DeviceRequestAllocationResult) -> str:
    amounts = ", ".join(f"{name}={amount}" for name, amount in sorted(device.consumed_capacity.items()))
    text = f"{device.request}={device.driver}/{device.pool}/{device.device}"
    return f"{text} ({amounts})" if amounts else text


def _format_full(device: DeviceRequestAllocationResult) -> str:
    words = [_format_device(device), *(["share"] if device.share_id is not None else [])]
    if device.admin_access:
        words.append("admin access")
    lists: dict[str, tuple[Any, ...]] = {
        "tolerations": device.tolerations,
        "bindingConditions": device.binding_conditions,
        "bindingFailureConditions": device.binding_failure_conditions,
    }
    words += [f"{name} {write_json(list(items)).decode()}" for name, items in lists.items() if items]
    return " · ".join(words)
