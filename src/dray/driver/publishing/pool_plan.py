"""The plan for a pool: its desired slices, and the smallest set of writes that leads there.

Theory of operation: a pool is laid out on pages (see `layout`); each page is one slice, and counters have
pages of their own. The names of slices follow from driver, node, pool and page number, so that the order of
names is the order of devices, and a publisher finds its slices again. `plan_pool` compares the desired slices
with the existing ones. Changes that concern one slice, or only attributes of devices that stay, are written
in place. When devices move between slices, or slices are added or removed, the plan writes a new generation
as a whole: until it is complete no allocator uses a mixture.

Rules for this file: pure. Fields that the server fills in (the time of a taint) are no difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
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
"""The annotation with the start time of the process that wrote a slice last: the newer of two wins."""

NO_NODE_SELECTION: Final = ResourceSliceSpec()

_NUMBER_DIGITS: Final = 6
_HASH_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class PublisherIdentity:
    """Identifies a publisher: its driver, node (empty: none) and name, and the owner of its slices."""

    driver: str
    node: str
    publisher: str
    owner: OwnerRef | None = None
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class DesiredPool:
    """A pool as it should be published: groups of devices, counters, and the nodes that reach them."""

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
    """The writes that make a pool as desired, and its slices after them."""

    wanted: tuple[ResourceSlice, ...] = ()
    creates: tuple[ResourceSlice, ...] = ()
    updates: tuple[tuple[ResourceSlice, ResourceSlice], ...] = ()
    """Each as the existing and the desired slice."""
    deletes: tuple[ResourceSlice, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.creates or self.updates or self.deletes)


def to_desired_pool(pool: Pool, node: str) -> DesiredPool:
    """Convert the author's pool; without nodes of its own it belongs to the node."""
    nodes = pool.nodes if pool.nodes is not None else node
    node_selection = ResourceSliceSpec(
        node_name=nodes if isinstance(nodes, str) and nodes else None,
        node_selector=to_node_selector(nodes),
        all_nodes=True if nodes is Reach.ALL_NODES else None,
        per_device_node_selection=True if nodes is Reach.PER_DEVICE else None,
    )
    return DesiredPool(pool.name, pool.slices, pool.counters, pool.priority, node_selection)


def strip_priorities(pool: DesiredPool) -> DesiredPool:
    """Return a pool without priorities, for a server that does not store them.

    Its slices are in the order of their priorities, because allocators take slices of equal priority by name.
    """
    slices = sorted(pool.slices, key=lambda part: part.priority or 0, reverse=True)
    return replace(pool, priority=None, slices=tuple(Slice(part.devices) for part in slices))


# --- names ---


def build_slice_name_prefix(driver: str, node: str, pool: str) -> str:
    """Build the prefix of the names of a pool's slices: readable, and different from that of other pools."""
    digest = hashlib.sha256("\0".join((driver, node, pool)).encode()).hexdigest()[:_HASH_LENGTH]
    readable = f"{node or pool.replace('/', '-')}-{driver}"
    max_length = MAX_SUBDOMAIN - _HASH_LENGTH - _NUMBER_DIGITS - len("--c")
    return f"{readable[:max_length].rstrip('-.')}-{digest}"


def _format_slice_name(prefix: str, number: int, *, counters: bool) -> str:
    return f"{prefix}-{'c' if counters else ''}{number:0{_NUMBER_DIGITS}}"


def _parse_slice_number(name: str, prefix: str, *, counters: bool) -> int | None:
    found = re.fullmatch(rf"{re.escape(prefix)}-{'c' if counters else ''}([0-9]{{{_NUMBER_DIGITS},}})", name)
    return int(found.group(1)) if found else None


# --- desired slices ---


def _make_fit_check(desired: DesiredPool) -> Callable[[Sequence[Device]], bool]:
    """Make the check what fits on a page; it runs once per device, so rich devices are found beforehand."""
    rich = frozenset(device.name for device in desired.devices if _is_rich(device))

    def fits(devices: Sequence[Device]) -> bool:
        if len(devices) <= RICH_DEVICES_PER_SLICE:
            return True
        return len(devices) <= DEVICES_PER_SLICE and rich.isdisjoint(device.name for device in devices)

    return fits if rich else lambda devices: len(devices) <= DEVICES_PER_SLICE


def _is_rich(device: Device) -> bool:
    """Whether a device has lists, taints or counters, which lower the number of devices per slice."""
    return bool(
        device.taints or device.consumes_counters or any(a.is_list for a in device.attributes.values())
    )


def _fits_counter_sets(sets: Sequence[CounterSet]) -> bool:
    return len(sets) <= COUNTER_SETS_PER_SLICE


def _lay_out_slices(
    desired: DesiredPool, identity: PublisherIdentity, previous: Iterable[ResourceSlice]
) -> tuple[ResourceSlice, ...]:
    """Lay out the slices of a pool, without a generation, close to the previous slices."""
    if not desired.devices:
        return ()
    prefix, known = build_slice_name_prefix(identity.driver, identity.node, desired.name), tuple(previous)
    devices = lay_out_pages(
        [part.devices for part in desired.slices],
        _find_previous_pages(known, prefix, False),
        _make_fit_check(desired),
    )
    counters = lay_out_pages(
        [desired.counters], _find_previous_pages(known, prefix, True), _fits_counter_sets
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
        _format_slice_name(prefix, page.number, counters=True): structs.replace(
            spec, shared_counters=page.items
        )
        for page in counters
    } | {
        _format_slice_name(prefix, page.number, counters=False): structs.replace(
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


# --- writes ---


def plan_pool(
    desired: DesiredPool,
    identity: PublisherIdentity,
    existing: Sequence[ResourceSlice],
    previous: Sequence[ResourceSlice] | None = None,
) -> PoolPlan:
    """Plan the writes for one pool, given its existing slices.

    `previous` are the slices as this publisher wrote them, if it has: then a slice that somebody deleted is
    created again as it was, instead of being merged into its neighbours.
    """
    slices = _lay_out_slices(desired, identity, existing if previous is None else previous)
    newest = max((each.spec.pool.generation for each in existing), default=0)
    newest = max(newest, max((each.spec.pool.generation for each in previous or ()), default=0), 1)
    plan = _diff_slices(slices, existing, newest, identity.started_at)
    if _needs_new_generation(plan, newest):
        return _diff_slices(slices, existing, newest + 1, identity.started_at)
    return plan


def _diff_slices(
    desired_slices: Sequence[ResourceSlice],
    existing: Sequence[ResourceSlice],
    generation: int,
    started_at: str,
) -> PoolPlan:
    existing_by_name = {each.metadata.name: each for each in existing}
    wanted: list[ResourceSlice] = []
    creates: list[ResourceSlice] = []
    updates: list[tuple[ResourceSlice, ResourceSlice]] = []
    for each in desired_slices:
        pool = structs.replace(each.spec.pool, generation=generation)
        new = structs.replace(each, spec=structs.replace(each.spec, pool=pool))
        old = existing_by_name.get(each.metadata.name)
        if old is not None and old.spec.node_name == new.spec.node_name:
            new = merge_server_fields(new, old)
            if new.spec != old.spec or new.metadata != old.metadata:
                new = _stamp_started_at(new, started_at)
                updates.append((old, new))
        else:
            new = _stamp_started_at(new, started_at)
            creates.append(new)
        wanted.append(new)
    kept = {each.metadata.name for each in wanted} - {each.metadata.name for each in creates}
    deletes = tuple(each for each in existing if each.metadata.name not in kept)
    return PoolPlan(tuple(wanted), tuple(creates), tuple(updates), deletes)


def _stamp_started_at(new: ResourceSlice, started_at: str) -> ResourceSlice:
    """Add the annotation with the start time of this process."""
    if not started_at:
        return new
    annotations = new.metadata.annotations | {PUBLISHED_SINCE_ANNOTATION: started_at}
    return structs.replace(new, metadata=structs.replace(new.metadata, annotations=annotations))


def merge_server_fields(new: ResourceSlice, old: ResourceSlice) -> ResourceSlice:
    """Add to a desired slice what the server and others added to the existing one, which is no difference."""
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
    """Keep the times that the server gave to taints that already exist."""
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
    """Whether a reader who saw only a part of these writes would see a pool that never was."""
    current = [pair for pair in plan.updates if pair[0].spec.pool.generation == newest]
    moved = [pair for pair in current if _is_structural_change(*pair)]
    deleted = [each for each in plan.deletes if each.spec.pool.generation == newest]
    has_counters = any(new.spec.shared_counters for _, new in current) and len(plan.updates) > 1
    others = len(plan.creates) + len(plan.updates) - len(current)
    return has_counters or bool((moved or deleted) and len(moved) + len(deleted) + others > 1)


def _is_structural_change(old: ResourceSlice, new: ResourceSlice) -> bool:
    """Whether a change concerns more than the content of devices that stay in their positions."""
    bare = (structs.replace(each.spec, devices=()) for each in (old, new))
    names = ([device.name for device in each.spec.devices] for each in (old, new))
    return next(bare) != next(bare) or next(names) != next(names)
