"""Publishing: the writes make the pool what the driver published, and are no more than needed.

A driver publishes a pool, then a changed one, and so on. A toy server keeps slices and sets the fields that
servers set. Writes may stop anywhere; a reader sees the old pool, the new pool, or an incomplete one, never a
mixture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dray.api.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSlice,
)
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import validate_create, validate_update
from dray.driver.devices import Pool, Slice
from dray.driver.publishing.layout import PreviousPage, lay_out_pages
from dray.driver.publishing.pool_plan import (
    DesiredPool,
    PoolPlan,
    PublisherIdentity,
    plan_pool,
    to_desired_pool,
)
from dray.driver.publishing.retained_devices import retain_used_devices
from dray.values.quantity import Quantity

HOME = PublisherIdentity("gpu.example.com", "node-a", "node")
WHERE = to_desired_pool(Pool("p"), "node-a").node_selection


@dataclass
class Server:
    """Keeps slices by name; counts writes."""

    slices: dict[str, ResourceSlice]
    writes: int = 0

    @property
    def standing(self) -> list[ResourceSlice]:
        return list(self.slices.values())

    def put(self, new: ResourceSlice) -> None:
        old = self.slices.get(new.metadata.name)
        assert not validate_create(new) if old is None else not validate_update(new, old)
        self.writes += 1
        now = f"2026-01-01T00:00:{self.writes % 60:02}Z"
        version = structs.replace(
            new.metadata, resource_version=str(self.writes), uid="u" + new.metadata.name
        )
        self.slices[new.metadata.name] = apply_defaults(structs.replace(new, metadata=version), now=now)

    def steps(self, plan: PoolPlan) -> list[tuple[str, ResourceSlice]]:
        written = [*plan.creates, *(new for _, new in plan.updates)]
        return [("put", each) for each in written] + [("delete", each) for each in plan.deletes]

    def do(self, step: tuple[str, ResourceSlice]) -> None:
        if step[0] == "put":
            self.put(step[1])
        else:
            self.writes += 1
            del self.slices[step[1].metadata.name]

    def apply(self, plan: PoolPlan) -> None:
        for step in self.steps(plan):
            self.do(step)

    def get_view(self) -> list[str] | None:
        """The devices in their order, as an allocator sees them; None while the pool is incomplete."""
        if not self.slices:
            return []
        newest = max(each.spec.pool.generation for each in self.standing)
        pages = [each for each in self.standing if each.spec.pool.generation == newest]
        if {each.spec.pool.resource_slice_count for each in pages} != {len(pages)}:
            return None
        pages.sort(key=lambda each: (-(each.spec.priority or 0), each.metadata.name))
        return [device.name for each in pages for device in each.spec.devices]

    def homes(self) -> dict[str, str]:
        """The slice of each device."""
        return {device.name: each.metadata.name for each in self.standing for device in each.spec.devices}


# --- pools and their changes ---

TAINT = DeviceTaint(key="example.com/broken", effect="NoExecute")
DRAW = DeviceCounterConsumption(counter_set="c0", counters={"memory": Counter(value=Quantity.parse("1Gi"))})


def counters(count: int) -> tuple[CounterSet, ...]:
    return tuple(
        CounterSet(name=f"c{at}", counters={"memory": Counter(value=Quantity.parse("8Gi"))})
        for at in range(count)
    )


def plain(*names: int) -> tuple[Device, ...]:
    return tuple(Device(name=f"d{name}") for name in names)


@st.composite
def offers(draw: st.DrawFn) -> DesiredPool:
    """A pool: up to some hundred devices of which some are tainted or draw from counters."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 63, 64, 65, 127, 128, 129, 200, 300]), max_size=3))
    first = draw(st.integers(0, 50))
    sets = draw(st.sampled_from([0, 0, 1, 8, 9]))
    backwards = draw(st.booleans())
    slices, number = [], first
    for size in sizes:
        names = list(range(number, number + size))
        number += size
        devices = plain(*(reversed(names) if backwards else names))
        rich = draw(st.sets(st.integers(0, size - 1), max_size=2))
        devices = tuple(
            structs.replace(each, taints=(TAINT,), consumes_counters=(DRAW,) if sets else ())
            if at in rich
            else each
            for at, each in enumerate(devices)
        )
        slices.append(Slice(devices, draw(st.sampled_from([None, None, 0, 5, -5]))))
    return DesiredPool("p", tuple(slices), counters(sets), draw(st.sampled_from([None, 3])), WHERE)


@st.composite
def changes(draw: st.DrawFn, old: DesiredPool) -> DesiredPool:
    """The same pool with devices taken away and added in a few places, or another one altogether."""
    if draw(st.integers(0, 3)) == 0:
        return draw(offers())
    slices: list[Slice] = []
    for at, part in enumerate(old.slices):
        devices = list(part.devices)
        for place in draw(st.lists(st.integers(0, 300), max_size=3)):
            if devices:
                devices.pop(place % len(devices))
        for new, place in enumerate(draw(st.lists(st.integers(0, 300), max_size=3))):
            devices.insert(place % (len(devices) + 1), Device(name=f"new-{at}-{new}-{draw(st.uuids())}"))
        slices.append(Slice(devices, part.priority))
    return replace(old, slices=tuple(part for part in slices if part.devices))


@st.composite
def histories(draw: st.DrawFn) -> list[DesiredPool]:
    told = [draw(offers())]
    for _ in range(draw(st.integers(0, 3))):
        told.append(draw(changes(told[-1])))
    return told


def order_of(offer: DesiredPool) -> list[str]:
    parts = sorted(offer.slices, key=lambda part: -(part.priority or 0))
    return [device.name for part in parts for device in part.devices]


@given(histories(), st.booleans())
def test_applying_the_plan_gives_the_published_pool_and_a_second_plan_is_empty(
    told: list[DesiredPool], remembers: bool
) -> None:
    server = Server({})
    left: tuple[ResourceSlice, ...] | None = None
    for offer in told:
        plan = plan_pool(offer, HOME, server.standing, left)
        server.apply(plan)
        assert server.get_view() == order_of(offer)
        found = {device.name: device for each in server.standing for device in each.spec.devices}
        bare = {
            name: structs.replace(
                device, taints=tuple(structs.replace(taint, time_added=None) for taint in device.taints)
            )
            for name, device in found.items()
        }
        assert bare == {device.name: device for device in offer.devices}
        sets = {each.name for page in server.standing for each in page.spec.shared_counters}
        assert sets == ({each.name for each in offer.counters} if offer.devices else set())
        left = tuple(server.standing) if remembers else None
        assert plan_pool(offer, HOME, server.standing, left).is_empty
        assert plan_pool(offer, HOME, server.standing).is_empty


@given(offers(), st.data())
def test_writes_that_stop_anywhere_show_the_old_pool_the_new_one_or_none(
    old: DesiredPool, data: st.DataObject
) -> None:
    server, new = Server({}), data.draw(changes(old))
    server.apply(plan_pool(old, HOME, []))
    before = server.get_view()
    plan = plan_pool(new, HOME, server.standing)
    puts = data.draw(st.permutations(server.steps(plan)[: len(plan.creates) + len(plan.updates)]))
    steps = [*puts, *server.steps(plan)[len(puts) :]]
    stop = data.draw(st.integers(0, len(steps)))
    for step in steps[:stop]:
        server.do(step)
        assert server.get_view() in (before, order_of(new), None)
    server.apply(plan_pool(new, HOME, server.standing))
    assert server.get_view() == order_of(new)
    assert plan_pool(new, HOME, server.standing).is_empty


@given(offers(), st.data())
def test_a_change_in_one_place_is_one_write_and_keeps_the_generation(
    old: DesiredPool, data: st.DataObject
) -> None:
    server = Server({})
    server.apply(plan_pool(old, HOME, []))
    plainly = [device for device in old.devices if not device.taints]
    if not plainly:
        return
    other = data.draw(st.sampled_from(plainly)).name

    def changed(device: Device) -> Device:
        return structs.replace(device, binds_to_node=True) if device.name == other else device

    slices = tuple(Slice(map(changed, part.devices), part.priority) for part in old.slices)
    before, homes = server.writes, server.homes()
    server.apply(plan_pool(replace(old, slices=slices), HOME, server.standing))
    assert server.writes - before == 1
    assert server.homes() == homes
    assert {each.spec.pool.generation for each in server.standing} == {1}


@given(offers(), st.data())
def test_a_deleted_slice_is_restored_alone_and_unchanged(old: DesiredPool, data: st.DataObject) -> None:
    server = Server({})
    server.apply(plan_pool(old, HOME, []))
    left = tuple(server.standing)
    if not left:
        return
    for lost in data.draw(st.sets(st.sampled_from(sorted(server.slices)), min_size=1)):
        del server.slices[lost]
    missing = len(left) - len(server.slices)
    before = server.writes
    server.apply(plan_pool(old, HOME, server.standing, left))
    assert server.writes - before == missing
    assert {each.metadata.name: each.spec.pool for each in server.standing} == {
        each.metadata.name: each.spec.pool for each in left
    }


def _fits(items: Sequence[object]) -> bool:
    return len(items) <= 4


@given(
    st.lists(st.integers(0, 40), unique=True, max_size=30),
    st.sets(st.integers(0, 40)),
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(100, 130)), max_size=8, unique_by=lambda pair: pair[1]
    ),
)
def test_devices_that_stay_in_order_keep_their_slice_unless_it_overflows(
    first: list[int], removed: set[int], added: list[tuple[int, int]]
) -> None:
    pages = lay_out_pages([plain(*first)], (), _fits)
    stood = [PreviousPage(page.number, tuple(item.name for item in page.items)) for page in pages]
    kept = [name for name in first if name not in removed]
    now = list(kept)
    for at, name in added:
        now.insert(min(at, len(now)), name)
    after = lay_out_pages([plain(*now)], stood, _fits)
    assert [item.name for page in after for item in page.items] == [f"d{name}" for name in now]
    numbers = [page.number for page in after]
    assert numbers == sorted(set(numbers))
    assert all(len(page.items) <= 4 for page in after)
    assert len(after) <= 2 * -(-len(now) // 4)
    was = {name: page.number for page in stood for name in page.names}
    homes = {item.name: page.number for page in after for item in page.items}
    moved = {was[name] for name in homes if name in was and homes[name] != was[name]}
    pieces = len({was[f"d{name}"] for name in kept}) + len(added)
    if pieces <= 2 * -(-len(now) // 4):  # else all may be packed anew
        # Only a page whose own devices, with the new ones among them, are too many is divided.
        for number in moved:
            of_page = [at for at, name in enumerate(now) if was.get(f"d{name}") == number]
            assert of_page[-1] - of_page[0] + 1 > 4


@given(offers(), offers(), st.data())
def test_devices_in_use_stay_in_their_order_until_released(
    old: DesiredPool, new: DesiredPool, data: st.DataObject
) -> None:
    server = Server({})
    server.apply(plan_pool(old, HOME, []))
    names = [device.name for device in old.devices]
    used = data.draw(st.sets(st.sampled_from(names), max_size=5)) if names else set()
    kept = retain_used_devices(new, server.standing, used)
    server.apply(plan_pool(kept, HOME, server.standing))
    told = {device.name: device for device in new.devices}
    found = {device.name: device for each in server.standing for device in each.spec.devices}
    assert found.keys() == told.keys() | used
    for name, device in found.items():
        marked = any(taint.key == "dray.dev/gone" for taint in device.taints)
        assert marked == (name not in told)
    assert retain_used_devices(new, server.standing, used) == kept
    server.apply(plan_pool(new, HOME, server.standing))
    assert server.get_view() == order_of(new)
