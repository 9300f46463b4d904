"""From the devices of a driver to slices, and the least that has to be written.

Theory of operation: a pool is laid out on pages (see `layout`), each page is one slice, counters stand on
pages of their own. Names follow from driver, node, pool and the number of the page, so that the order of
names is the order of devices, and whoever publishes again finds its slices. `plan_pool` compares what should
be there with what stands there. Changes that concern one slice, or only what is said of devices that stay,
are written in place. As soon as devices move between slices, or slices come and go, a new generation is begun
and written as a whole: until it is complete nobody uses a mixture.

Devices that vanish while somebody uses them stay, with the taint `dray.dev/gone:NoSchedule`: nobody new gets
them, and nobody who works with one is disturbed. A network interface that was moved into a pod is not broken,
so it is not for the publisher to evict anybody.

Rules for this file: pure. What the server fills in (the time of a taint) is no difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from dray.api.limits import COUNTER_SETS_PER_SLICE, DEVICES_PER_SLICE, RICH_DEVICES_PER_SLICE
from dray.api.meta import ObjectMeta, OwnerRef
from dray.api.resource import (
    CounterSet,
    Device,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.driver.devices import Pool, Reach, Slice, to_node_selector
from dray.driver.publishing.layout import PreviousPage, lay_out_pages
from dray.values.names import MAX_SUBDOMAIN

PUBLISHER_LABEL: Final = "dray.dev/publisher"
"""The label that says which of a driver's publishers a slice belongs to."""
PUBLISHED_SINCE_ANNOTATION: Final = "dray.dev/published-since"
"""The annotation that says since when the process works that wrote a slice last: the newer of two wins."""
GONE_TAINT: Final = DeviceTaint(key="dray.dev/gone", effect="NoSchedule")
"""On a device that the driver no longer tells of, while somebody still uses it."""

NO_NODE_SELECTION: Final = ResourceSliceSpec()

_NUMBER_DIGITS: Final = 6
_HASH_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class PublisherIdentity:
    """Whose slices: the driver, its node (empty: none), the publisher, and who owns the slices."""

    driver: str
    node: str
    publisher: str
    owner: OwnerRef | None = None
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class DesiredPool:
    """A pool as it shall be published: groups of devices, counters, and the nodes that reach them."""

    name: str
    slices: tuple[Slice, ...]
    counters: tuple[CounterSet, ...] = ()
    priority: int | None = None
    node_selection: ResourceSliceSpec = NO_NODE_SELECTION
    """Only the fields that select nodes are set."""

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for part in self.slices for device in part.devices)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What to write so that a pool is as it should be, and how it is then."""

    wanted: tuple[ResourceSlice, ...] = ()
    creates: tuple[ResourceSlice, ...] = ()
    updates: tuple[tuple[ResourceSlice, ResourceSlice], ...] = ()
    """As it stands, and as it should."""
    deletes: tuple[ResourceSlice, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.creates or self.updates or self.deletes)


def to_desired_pool(pool: Pool, node: str) -> DesiredPool:
    """A pool as its author wrote it; without nodes of its own it is the node's."""
    nodes = pool.nodes if pool.nodes is not None else node
    where = ResourceSliceSpec(
        node_name=nodes if isinstance(nodes, str) and nodes else None,
        node_selector=to_node_selector(nodes),
        all_nodes=True if nodes is Reach.ALL_NODES else None,
        per_device_node_selection=True if nodes is Reach.PER_DEVICE else None,
    )
    return DesiredPool(pool.name, pool.slices, pool.counters, pool.priority, where)


# --- names ---


def build_slice_name_prefix(driver: str, node: str, pool: str) -> str:
    """How the names of all slices of a pool begin: readable, and never that of another pool."""
    mark = hashlib.sha256("\0".join((driver, node, pool)).encode()).hexdigest()[:_HASH_LENGTH]
    readable = f"{node or pool.replace('/', '-')}-{driver}"
    longest = MAX_SUBDOMAIN - _HASH_LENGTH - _NUMBER_DIGITS - len("--c")
    return f"{readable[:longest].rstrip('-.')}-{mark}"


def _format_slice_name(prefix: str, number: int, *, counters: bool) -> str:
    return f"{prefix}-{'c' if counters else ''}{number:0{_NUMBER_DIGITS}}"


def _parse_slice_number(name: str, prefix: str, *, counters: bool) -> int | None:
    found = re.fullmatch(rf"{re.escape(prefix)}-{'c' if counters else ''}([0-9]{{{_NUMBER_DIGITS},}})", name)
    return int(found.group(1)) if found else None


# --- what should be there ---


def _make_fit_check(desired: DesiredPool) -> Callable[[Sequence[Device]], bool]:
    """What fits on a page of this pool; asked once per device, so richness is looked up only once."""
    rich = frozenset(device.name for device in desired.devices if _is_rich(device))

    def fits(devices: Sequence[Device]) -> bool:
        if len(devices) <= RICH_DEVICES_PER_SLICE:
            return True
        return len(devices) <= DEVICES_PER_SLICE and rich.isdisjoint(device.name for device in devices)

    return fits if rich else lambda devices: len(devices) <= DEVICES_PER_SLICE


def _is_rich(device: Device) -> bool:
    """Whether a device has what makes devices large: lists, taints or counters."""
    return bool(
        device.taints or device.consumes_counters or any(a.is_list for a in device.attributes.values())
    )


def _fits_counter_sets(sets: Sequence[CounterSet]) -> bool:
    return len(sets) <= COUNTER_SETS_PER_SLICE


def _lay_out_slices(
    desired: DesiredPool, identity: PublisherIdentity, previous: Iterable[ResourceSlice]
) -> tuple[ResourceSlice, ...]:
    """The slices of a pool without a generation; those that were there before keep what they can."""
    if not desired.devices:
        return ()
    beginning, known = build_slice_name_prefix(identity.driver, identity.node, desired.name), tuple(previous)
    devices = lay_out_pages(
        [part.devices for part in desired.slices],
        _find_previous_pages(known, beginning, False),
        _make_fit_check(desired),
    )
    counters = lay_out_pages(
        [desired.counters], _find_previous_pages(known, beginning, True), _fits_counter_sets
    )
    metadata = ObjectMeta(
        labels={PUBLISHER_LABEL: identity.publisher},
        owner_references=() if identity.owner is None else (identity.owner,),
    )
    pool = ResourcePool(
        name=desired.name, resource_slice_count=len(devices) + len(counters), priority=desired.priority
    )
    spec = structs.replace(desired.node_selection, driver=identity.driver, pool=pool)
    specs: dict[str, ResourceSliceSpec] = {
        _format_slice_name(beginning, page.number, counters=True): structs.replace(
            spec, shared_counters=page.items
        )
        for page in counters
    } | {
        _format_slice_name(beginning, page.number, counters=False): structs.replace(
            spec, devices=page.items, priority=desired.slices[page.group].priority
        )
        for page in devices
    }
    return tuple(
        ResourceSlice(metadata=structs.replace(metadata, name=name), spec=each)
        for name, each in specs.items()
    )


def _find_previous_pages(slices: Iterable[ResourceSlice], prefix: str, counters: bool) -> list[PreviousPage]:
    found = []
    for each in slices:
        number = _parse_slice_number(each.metadata.name, prefix, counters=counters)
        items: Sequence[Any] = each.spec.shared_counters if counters else each.spec.devices
        if number is not None and number > 0:
            found.append(PreviousPage(number, tuple(item.name for item in items)))
    return sorted(found, key=lambda page: page.number)


# --- what to write ---


def plan_pool(
    desired: DesiredPool,
    identity: PublisherIdentity,
    existing: Sequence[ResourceSlice],
    previous: Sequence[ResourceSlice] | None = None,
) -> PoolPlan:
    """What to write for one pool, given its slices as they stand.

    `previous` is how this publisher left them, when it knows: then a slice that somebody took away comes back
    as it was, and not merged into its neighbours.
    """
    laid = _lay_out_slices(desired, identity, existing if previous is None else previous)
    newest = max((each.spec.pool.generation for each in existing), default=0)
    newest = max(newest, max((each.spec.pool.generation for each in previous or ()), default=0), 1)
    plan = _diff_slices(laid, existing, newest, identity.started_at)
    return (
        _diff_slices(laid, existing, newest + 1, identity.started_at)
        if _needs_new_generation(plan, newest)
        else plan
    )


def _diff_slices(
    desired_slices: Sequence[ResourceSlice],
    existing: Sequence[ResourceSlice],
    generation: int,
    started_at: str,
) -> PoolPlan:
    there = {each.metadata.name: each for each in existing}
    wanted: list[ResourceSlice] = []
    creates: list[ResourceSlice] = []
    updates: list[tuple[ResourceSlice, ResourceSlice]] = []
    for each in desired_slices:
        pool = structs.replace(each.spec.pool, generation=generation)
        new, old = (
            structs.replace(each, spec=structs.replace(each.spec, pool=pool)),
            there.get(each.metadata.name),
        )
        if old is not None and old.spec.node_name == new.spec.node_name:
            new = merge_server_fields(new, old)
            if new.spec != old.spec or new.metadata != old.metadata:
                new = _stamp_started_at(new, started_at)
                updates.append((old, new))
        else:
            new = _stamp_started_at(new, started_at)
            creates.append(new)
        wanted.append(new)
    stays = {each.metadata.name for each in wanted} - {each.metadata.name for each in creates}
    deletes = tuple(each for each in existing if each.metadata.name not in stays)
    return PoolPlan(tuple(wanted), tuple(creates), tuple(updates), deletes)


def _stamp_started_at(new: ResourceSlice, started_at: str) -> ResourceSlice:
    """A slice that is about to be written."""
    if not started_at:
        return new
    annotations = new.metadata.annotations | {PUBLISHED_SINCE_ANNOTATION: started_at}
    return structs.replace(new, metadata=structs.replace(new.metadata, annotations=annotations))


def merge_server_fields(new: ResourceSlice, old: ResourceSlice) -> ResourceSlice:
    """What should be there, with what the server and others added that is no difference."""
    metadata = structs.replace(
        old.metadata,
        labels=old.metadata.labels | new.metadata.labels,
        owner_references=new.metadata.owner_references or old.metadata.owner_references,
        managed_fields=old.metadata.managed_fields,
    )
    known = {device.name: device for device in old.spec.devices if device.taints}
    devices = new.spec.devices
    if known:
        devices = tuple(_keep_taint_times(device, known.get(device.name)) for device in devices)
    return structs.replace(new, metadata=metadata, spec=structs.replace(new.spec, devices=devices))


def _keep_taint_times(device: Device, old: Device | None) -> Device:
    """Taints that were there before keep the time the server gave them."""
    if old is None or not device.taints:
        return device
    times = {_get_taint_key(taint): taint.time_added for taint in old.taints}
    return structs.replace(
        device,
        taints=tuple(
            taint if taint.time_added else structs.replace(taint, time_added=times.get(_get_taint_key(taint)))
            for taint in device.taints
        ),
    )


def _get_taint_key(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def _needs_new_generation(plan: PoolPlan, newest: int) -> bool:
    """Whether somebody who saw only a part of these changes would see a pool that never was."""
    live = [pair for pair in plan.updates if pair[0].spec.pool.generation == newest]
    moved = [pair for pair in live if _is_structural_change(*pair)]
    taken = [each for each in plan.deletes if each.spec.pool.generation == newest]
    counted = any(new.spec.shared_counters for _, new in live) and len(plan.updates) > 1
    others = len(plan.creates) + len(plan.updates) - len(live)
    return counted or bool((moved or taken) and len(moved) + len(taken) + others > 1)


def _is_structural_change(old: ResourceSlice, new: ResourceSlice) -> bool:
    """Whether a change is about more than what is said of devices that stay where they are."""
    bare = (structs.replace(each.spec, devices=()) for each in (old, new))
    names = ([device.name for device in each.spec.devices] for each in (old, new))
    return next(bare) != next(bare) or next(names) != next(names)


# --- devices that are gone and still in use ---


def retain_used_devices(
    desired: DesiredPool, existing: Sequence[ResourceSlice], in_use: Collection[str], may_taint: bool = True
) -> DesiredPool:
    """The pool with devices that it does not tell of any more and that somebody uses, each in its place."""
    told = {device.name for device in desired.devices}
    parts = [list(part.devices) for part in desired.slices] or [[]]
    previous: str | None = None
    newest = max((each.spec.pool.generation for each in existing), default=0)
    gone: list[Device] = []
    for page in sorted(existing, key=lambda each: each.metadata.name):
        for device in page.spec.devices if page.spec.pool.generation == newest else ():
            if device.name not in told and device.name in in_use:
                told.add(device.name)
                gone.append(_add_gone_taint(device) if may_taint else device)
                _insert_after(parts, gone[-1], previous)
            if device.name in told:
                previous = device.name
    if not gone:
        return desired
    old = desired.slices or (Slice(()),)
    slices = tuple(Slice(devices, part.priority) for devices, part in zip(parts, old, strict=True))
    return replace(desired, slices=slices, counters=_retain_counters(desired.counters, gone, existing))


def _add_gone_taint(device: Device) -> Device:
    others = tuple(taint for taint in device.taints if taint.key != GONE_TAINT.key)
    return structs.replace(device, taints=(*others, GONE_TAINT))


def _insert_after(parts: list[list[Device]], device: Device, previous: str | None) -> None:
    for part in parts:
        for at, each in enumerate(part):
            if each.name == previous:
                part.insert(at + 1, device)
                return
    parts[0].insert(0, device)


def _retain_counters(
    counters: tuple[CounterSet, ...], gone: Sequence[Device], existing: Sequence[ResourceSlice]
) -> tuple[CounterSet, ...]:
    """The counters, with those that only devices draw from that are gone."""
    drawn = {draw.counter_set for device in gone for draw in device.consumes_counters}
    missing = drawn - {each.name for each in counters}
    old: Mapping[str, CounterSet] = {
        each.name: each for page in existing for each in page.spec.shared_counters
    }
    return (*counters, *(old[name] for name in sorted(missing) if name in old))


def build_emptied_pool(existing: Sequence[ResourceSlice]) -> DesiredPool:
    """A pool that is not told of any more, without devices: as it was published otherwise."""
    spec = existing[0].spec
    where = ResourceSliceSpec(
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        all_nodes=spec.all_nodes,
        per_device_node_selection=spec.per_device_node_selection,
    )
    return DesiredPool(spec.pool.name, (), (), spec.pool.priority, where)
