"""The report of `dray free`: pools, devices and groups as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dray.allocator.refusals import REASON_TEXTS, RefusalReason
from dray.api.resource import DeviceTaint
from dray.cli.output.tables import COLUMN_GAP, render_table
from dray.cli.output.text import format_count, sanitize_line
from dray.explain.refusal_details import describe_pool_flaw, format_taint
from dray.explain.rendering.refusal_phrases import format_pool_flaw
from dray.explain.rendering.text import wrap_text
from dray.explain.wording import join_names
from dray.simulation.free_devices import (
    AvailabilityState,
    DeviceAvailability,
    DeviceHolder,
    FreeDevices,
    PoolAvailability,
)

API_VERSION: Final = "free.dray/v1"
KIND: Final = "FreeDevices"
_MAX_REASONS = 10
"""Reasons below the table of pools; `-o wide` has all of them."""
_MAX_NAMES = 3
_DEFAULT_WIDTH = 100
_MIN_DEVICES_WIDTH = 24


# --- a line per pool ---


def render_pools(found: FreeDevices, width: int = 0) -> Iterator[str]:
    """Render a line per pool, and why devices that nobody holds cannot be had; it fits `width`."""
    width = width or _DEFAULT_WIDTH
    yield from _render_pool_table([pool for pool in found.pools if pool.flaw is None], width)
    reasons = [*_list_reasons(found), *_list_flaws(found)]
    shown = reasons if len(reasons) <= _MAX_REASONS else reasons[: _MAX_REASONS - 1]
    if shown:
        yield ""
    for reason in shown:
        yield from wrap_text(sanitize_line(reason), width, "", "  ")
    if len(shown) < len(reasons):
        yield f"{len(reasons) - len(shown)} more like this; `-o wide` shows every device"
    yield ""
    yield from wrap_text(_summarize(found), width, "", "  ")


def _render_pool_table(pools: Sequence[PoolAvailability], width: int) -> Iterator[str]:
    titles = ["node", "driver", "pool", "free", "devices"]
    # Pools that are called like their nodes need no column.
    is_plain = all(pool.nodes == (pool.pool,) for pool in pools)
    rows = [
        [*_build_place(pool, is_plain), f"{len(pool.available)}/{len(pool.devices)}", ""] for pool in pools
    ]
    shown = [i for i in range(4) if any(row[i] for row in rows)]
    others = sum(
        max(len(sanitize_line(text)) for text in (titles[i], *(row[i] for row in rows))) + len(COLUMN_GAP)
        for i in shown
    )
    for row, pool in zip(rows, pools, strict=True):
        row[4] = _fit_names([_format_available(each) for each in pool.available], width - others)
    if rows:
        yield from render_table(titles, rows)


def _build_place(pool: PoolAvailability, is_plain: bool) -> tuple[str, str, str]:
    return join_names(pool.nodes, _MAX_NAMES), pool.driver, "" if is_plain else pool.pool


def _format_available(device: DeviceAvailability) -> str:
    left = ", ".join(
        f"{each.name} {each.left}" + (f" of {each.total}" if each.left != each.total else "")
        for each in device.capacity
    )
    return f"{device.name} ({left})" if left else device.name


def _fit_names(names: Sequence[str], width: int) -> str:
    """Join names as far as they fit."""
    width = max(width, _MIN_DEVICES_WIDTH)
    text = ", ".join(names)
    kept = len(names)
    while len(text) > width and kept > 1:
        kept -= 1
        text = f"{', '.join(names[:kept])} +{len(names) - kept}"
    return text


def _list_reasons(found: FreeDevices) -> Iterator[str]:
    """List why devices that no claim holds cannot be had; devices with the same reason together."""
    for pool in found.pools:
        grouped: dict[str, list[str]] = {}
        for device in pool.devices:
            if device.state in (AvailabilityState.USED_UP, AvailabilityState.UNUSABLE):
                grouped.setdefault(describe_reason(device), []).append(device.name)
        place = join_names(pool.nodes, _MAX_NAMES)
        for reason, names in grouped.items():
            verb = "is" if len(names) == 1 else "are"
            yield f"{join_names(names, _MAX_NAMES)} on {place} {verb} {reason}"
        if pool.has_overlap:
            yield (
                f"not all free devices of pool {pool.driver}/{pool.pool} can be had at once: they draw on "
                "the same counters"
            )
    for node, state in found.closed_nodes:
        yield f"{node} is {state}: it takes no new pods, whatever is free there"


def _list_flaws(found: FreeDevices) -> Iterator[str]:
    for pool in found.pools:
        if pool.flaw is not None:
            flaw = describe_pool_flaw((pool.driver, pool.pool), pool.flaw, "")
            yield f"{format_pool_flaw(flaw, with_names=True)} (on {join_names(pool.nodes, _MAX_NAMES)})"
    for driver, name in found.unseen:
        yield f"pool {driver}/{name} is seen by no node"


def _summarize(found: FreeDevices) -> str:
    devices = [device for pool in found.pools for device in pool.devices]
    if not devices:
        return "there are no devices"
    free = sum(device.state.can_be_had for device in devices)
    nodes = {node for pool in found.pools if pool.available for node in pool.nodes}
    where = f" on {format_count(len(nodes), 'node')}" if nodes else ""
    return f"{free} of {format_count(len(devices), 'device')} can be had{where}"


def describe_reason(device: DeviceAvailability) -> str:
    """Describe why a device cannot be had: `used up by partition gpu-0-mig-1 (pod ml/train-0)`."""
    if device.state is AvailabilityState.IN_USE:
        return f"in use by {_format_holders(device.holders)}"
    if device.state is AvailabilityState.USED_UP:
        if not device.blockers:
            return f"used up by {_format_holders(device.holders)}" if device.holders else "used up"
        noun = "partition " if device.blockers[0].is_partition else ""
        names = [f"{each.device} ({_format_holders(each.holders)})" for each in device.blockers]
        return f"used up by {noun}{join_names(names, _MAX_NAMES)}"
    if device.refusal is None:
        return ""
    text = _UNUSABLE_TEXTS.get(device.refusal.reason) or REASON_TEXTS[device.refusal.reason]
    detail = device.refusal.detail
    return f"{text} ({format_taint(detail)})" if isinstance(detail, DeviceTaint) else text


_UNUSABLE_TEXTS: Final = {
    RefusalReason.COUNTER_SHORT: "unusable: it needs more of a counter than its pool has",
    RefusalReason.CAPACITY_SHORT: "unusable: its request policy asks for more capacity than it has",
    RefusalReason.CAPACITY_POLICY: "unusable: its request policy allows no amount that it has",
}
"""Reasons of devices that could not be had if nobody held anything."""


def _format_holders(holders: Iterable[DeviceHolder]) -> str:
    names: list[str] = []
    for holder in holders:
        names += [f"pod {pod}" for pod in holder.pods] or [f"claim {holder.claim}"]
    return join_names(names, _MAX_NAMES)


# --- a line per device ---


def render_devices(found: FreeDevices) -> Iterator[str]:
    """Render a line per device: its state, what is left of it, and who holds it or uses it up."""
    rows = []
    for pool in found.pools:
        nodes = join_names(pool.nodes, _MAX_NAMES)
        for device in pool.devices:
            left = ", ".join(f"{each.name} {each.left} of {each.total}" for each in device.capacity)
            reason = "" if device.state.can_be_had or device.holders else describe_reason(device)
            rows.append(
                (
                    nodes,
                    pool.driver,
                    pool.pool,
                    device.name,
                    device.state.value,
                    left,
                    _format_holders(device.holders),
                    reason,
                )
            )
    if rows:
        yield from render_table(("node", "driver", "pool", "device", "state", "left", "held by", "why"), rows)
    flaws = list(_list_flaws(found))
    yield from ("", *map(sanitize_line, flaws)) if flaws else ()
    yield ""
    yield _summarize(found)


# --- a line per value of an attribute ---


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """The devices of one driver that have one value of an attribute."""

    value: str
    driver: str
    total: int
    free: int
    nodes: tuple[str, ...]
    """The nodes that have one to give."""


def group_by_attribute(found: FreeDevices, attribute: str) -> list[DeviceGroup]:
    """Group devices by the values of an attribute; devices without it are one group, if any has it."""
    groups: dict[tuple[str, str], list[tuple[DeviceAvailability, tuple[str, ...]]]] = {}
    is_known = False
    for pool in found.pools:
        for device in pool.devices:
            values = list_values(device, attribute)
            is_known = is_known or bool(values)
            for value in values or ("",):
                groups.setdefault((value, pool.driver), []).append((device, pool.nodes))
    if not is_known:
        return []
    rows = []
    for (value, driver), members in sorted(groups.items(), key=lambda item: (not item[0][0], item[0])):
        free = [(device, nodes) for device, nodes in members if device.state.can_be_had]
        names = tuple(sorted({node for _, nodes in free for node in nodes}))
        rows.append(DeviceGroup(value, driver, len(members), len(free), names))
    return rows


def list_values(device: DeviceAvailability, attribute: str) -> list[str]:
    """List the values of an attribute, which may be named without its domain."""
    profile = device.profile
    if profile is None:
        return []
    names = [attribute] if "/" in attribute else _find_names(device, attribute)
    values = {value for name in names for _, value in profile.get_values(name)}
    return sorted(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def _find_names(device: DeviceAvailability, attribute: str) -> list[str]:
    assert device.profile is not None
    return [name for name in device.profile.device.attributes if name.rpartition("/")[2] == attribute]


def list_attributes(found: FreeDevices) -> list[str]:
    """List the attributes that devices have."""
    return sorted(
        {
            name
            for pool in found.pools
            for device in pool.devices
            if device.profile is not None
            for name in device.profile.device.attributes
        }
    )


def render_groups(found: FreeDevices, attribute: str) -> Iterator[str]:
    """Render a line per value of an attribute."""
    rows = [
        (
            group.value or "(none)",
            group.driver,
            f"{group.free}/{group.total}",
            join_names(group.nodes, _MAX_NAMES),
        )
        for group in group_by_attribute(found, attribute)
    ]
    if rows:
        yield from render_table((attribute, "driver", "free", "nodes"), rows)
        yield ""
    yield _summarize(found)


# --- for programs ---


def build_document(found: FreeDevices, remarks: Sequence[str], attribute: str | None) -> dict[str, Any]:
    """Build the document of everything that was found."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "remarks": list(remarks)}
    if attribute is not None:
        groups = [
            {
                "value": group.value or None,
                "driver": group.driver,
                "total": group.total,
                "free": group.free,
                "nodes": list(group.nodes),
            }
            for group in group_by_attribute(found, attribute)
        ]
        return {**document, "attribute": attribute, "groups": groups}
    document["pools"] = [_build_pool(pool) for pool in found.pools]
    document["closedNodes"] = [{"node": node, "state": state} for node, state in found.closed_nodes]
    document["unseenPools"] = [{"driver": driver, "pool": pool} for driver, pool in found.unseen]
    return document


def _build_pool(pool: PoolAvailability) -> dict[str, Any]:
    counters: dict[str, dict[str, str]] = {}
    for (group, name), left in pool.counters_left.items():
        counters.setdefault(group, {})[name] = str(left)
    problem = ""
    if pool.flaw is not None:
        problem = format_pool_flaw(
            describe_pool_flaw((pool.driver, pool.pool), pool.flaw, ""), with_names=True
        )
    return {
        "nodes": list(pool.nodes),
        "driver": pool.driver,
        "pool": pool.pool,
        "problem": problem,
        "countersLeft": counters,
        "allAtOnce": not pool.has_overlap,
        "devices": [_build_device(device) for device in pool.devices],
    }


def _build_device(device: DeviceAvailability) -> dict[str, Any]:
    return {
        "name": device.name,
        "state": device.state.value,
        "available": device.state.can_be_had,
        "capacity": {
            each.name: {"left": str(each.left), "total": str(each.total)} for each in device.capacity
        },
        "heldBy": [_build_holder(holder) for holder in device.holders],
        "usedUpBy": [
            {"device": each.device, "heldBy": [_build_holder(holder) for holder in each.holders]}
            for each in device.blockers
        ],
        "reason": "" if device.state.can_be_had else describe_reason(device),
    }


def _build_holder(holder: DeviceHolder) -> dict[str, Any]:
    return {"claim": holder.claim, "pods": list(holder.pods)}
