"""Random small problems: the world of slices, and what is taken of it.

Theory of operation: everything the allocator knows can occur, but not everything at once: each problem draws
which features it uses, so that about half of the problems have a solution and the others fail for an
interesting reason. All chance comes from the `Random` that is handed in; hypothesis hands in its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from dray.api.resource import CounterSet, Device, DeviceTaint, ResourceClaim, ResourceSlice
from tests.brute import builders as make
from tests.brute.config_builders import ask_for, class_config
from tests.brute.problem import Problem

T = TypeVar("T")

FEATURES = {
    "shares": 0.45,
    "counters": 0.35,
    "attributes": 0.6,
    "taints": 0.25,
    "held": 0.45,
    "per_device": 0.15,
    "binding": 0.15,
    "flawed": 0.15,
    "priorities": 0.25,
    "two_nodes": 0.35,
    "alternatives": 0.4,
    "all": 0.25,
    "admin": 0.2,
    "faults": 0.08,
    "limited": 0.1,
    "config": 0.15,
}
"""What a problem may use, and how often it does."""

TIGHT = {"counters": 0.5, "attributes": 0.7, "alternatives": 0.4, "all": 0.25, "shares": 0.3, "limited": 0.1}
"""The same for a third of the problems: nothing odd, but many requests that get into each other's way."""

DRIVERS = ("gpu.example", "nic.example")
ZONES = {"n1": {"zone": "z1", "rack": "r1"}, "n2": {"zone": "z2", "rack": "r1"}}
ODDITIES = ("old", "old", "new", "disagrees", "twice", "unequal", "short", "namesake", "namesake")
"""What can be odd about a pool."""


class Size(NamedTuple):
    """The most a problem may have."""

    devices: int
    requests: int


SMALL = Size(devices=6, requests=4)
"""Small enough for the plain search."""

LARGE = Size(devices=12, requests=7)
"""Large enough for walks that go far astray."""


class Chance:
    """A source of chance with a few words of its own, and the features of one problem."""

    def __init__(self, source: Random, size: Size, always: Collection[str] = ()) -> None:
        self.source = source
        self.size = size
        self.is_tight = self.happens(0.35)
        odds = TIGHT if self.is_tight else FEATURES
        self.features = {name for name, often in odds.items() if self.happens(often)} | {*always}

    def happens(self, odds: float) -> bool:
        return self.source.random() < odds

    def one(self, items: Sequence[T]) -> T:
        return items[self.source.randrange(len(items))]

    def up_to(self, most: int, least: int = 0) -> int:
        return self.source.randint(least, most)

    def uses(self, feature: str, odds: float = 1.0) -> bool:
        return feature in self.features and self.happens(odds)


def draw(source: Random, size: Size = SMALL, always: Collection[str] = ()) -> Problem:
    """One problem; `always` are features that it uses in any case."""
    chance = Chance(source, size, always)
    slices = _Shelves(chance).filled()
    nodes = [make.node("n1", **ZONES["n1"])]
    if chance.uses("two_nodes"):
        slices += [_mirrored(chance, item) for item in slices if _pool(item) not in _pools_elsewhere(slices)]
        nodes.append(make.node("n2", **ZONES["n2"]))
    classes = (
        make.device_class("any"),
        make.device_class("gpu", "driver:gpu.example"),
        make.device_class("odd", "attr?:dra.example/numa=1", config=_class_config(chance)),
    )
    return Problem(
        slices=tuple(slices),
        classes=classes,
        claims=ask_for(chance),
        held=_held(chance, slices) if chance.uses("held") else (),
        nodes=tuple(nodes),
        limit=3 if chance.uses("limited") else 32,
    )


def _class_config(chance: Chance) -> tuple[Any, ...]:
    return (class_config("fast"),) if chance.uses("config") else ()


class _Shelves:
    """The pools of a problem while they are being made."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._left = chance.size.devices

    def filled(self) -> list[ResourceSlice]:
        chance = self._chance
        many = chance.one([1, 1, 2] if chance.is_tight else [1, 2, 2, 3])
        pools = {(chance.one([*DRIVERS, DRIVERS[0]]), f"p{chance.up_to(1)}") for _ in range(many)}
        return [item for driver, pool in sorted(pools) for item in self._pool(driver, pool)]

    def _pool(self, driver: str, pool: str) -> list[ResourceSlice]:
        chance = self._chance
        counters = chance.uses("counters", 0.8)
        pages = [self._devices(counters) for _ in range(2 if chance.is_tight else chance.up_to(2, 1))]
        odd = chance.one(ODDITIES) if chance.uses("flawed", 0.8) else "none"
        said: dict[str, Any] = {
            "driver": driver,
            "pool": pool,
            "generation": chance.up_to(2, 1),
            "count": len(pages) + counters + (odd in ("short", "disagrees", "twice", "unequal", "namesake")),
            "pool_priority": self._priority(),
        }
        found = [
            make.published(
                *self._placed(page, where := self._where()),
                name=f"{driver[:3]}-{pool}-{chance.up_to(999)}-{i}",
                priority=self._priority(),
                **where,
                **said,
            )
            for i, page in enumerate(pages)
        ]
        if counters:
            sets = [self._budget(found)]
            where = {"node_name": "n1"} if chance.happens(0.5) else {"all_nodes": True}
            found.append(make.published(*sets, name=f"{driver[:3]}-{pool}-counters", **where, **said))
        return found + self._others(odd, found[0], said)

    def _budget(self, found: list[ResourceSlice]) -> CounterSet:
        """Counters for a pool; where it is tight just enough for two or three modest devices."""
        chance = self._chance
        slots = chance.up_to(6, 2)
        drawn = sorted(
            int(str(counter.value))
            for page in found
            for device in page.spec.devices
            for part in device.consumes_counters
            for name, counter in part.counters.items()
            if name == "slots"
        )
        if chance.is_tight and drawn:
            slots = sum(drawn[: chance.up_to(3, 2)]) + chance.up_to(1)
        return make.budget("set", slots=slots, lanes=chance.up_to(6, 2))

    def _priority(self) -> int | None:
        return self._chance.up_to(1, -1) if self._chance.uses("priorities", 0.6) else None

    def _where(self) -> dict[str, Any]:
        chance = self._chance
        if chance.is_tight:
            return {"node_name": "n1"}
        if chance.uses("per_device", 0.6):
            return {"per_device_node_selection": True}
        return chance.one(
            [
                {"node_name": "n1"},
                {"node_name": "n1"},
                {"node_name": "n1"},
                {"all_nodes": True},
                {"node_selector": make.labelled({"zone": "z1"})},
                {"node_selector": make.labelled({"rack": "r1"})},
                {"node_name": "n2"} if chance.happens(0.3) else {"node_name": "n1"},
                {"node_selector": make.labelled({"zone": "z1"}, {"zone": "z2"})}
                if chance.happens(0.3)
                else {"all_nodes": True},
            ]
        )

    def _placed(self, page: list[dict[str, Any]], where: dict[str, Any]) -> list[Device]:
        """Devices of a page, with nodes of their own where the page wants that."""
        placed = []
        for fields in page:
            own: dict[str, Any] = {}
            if where.get("per_device_node_selection"):
                own = self._chance.one(
                    [
                        {"node_name": "n1"},
                        {"node_name": "n2"},
                        {"all_nodes": True},
                        {"node_selector": make.labelled({"zone": "z1"})},
                    ]
                )
            placed.append(make.device(**fields, **own))
        return placed

    def _devices(self, counters: bool) -> list[dict[str, Any]]:
        chance = self._chance
        page = []
        for i in range(min(chance.one([1, 2, 3, 3]), self._left)):
            self._left -= 1
            page.append(self._device(f"d{chance.size.devices - self._left}", counters))
            if i and chance.happens(0.4):
                # Interchangeable devices: the same again under another name.
                page[-1] = {**page[-2], "name": page[-1]["name"]}
        if chance.is_tight and chance.happens(0.6):
            # Greedy devices first: taking the first that fits is then seldom right.
            page.sort(key=lambda fields: str(fields.get("consumes_counters")), reverse=True)
        return page

    def _device(self, name: str, counters: bool) -> dict[str, Any]:
        chance = self._chance
        fields: dict[str, Any] = {"name": name, "attributes": {}}
        if chance.uses("attributes"):
            fields["attributes"] = self._attributes()
        if chance.uses("shares", 0.6):
            fields["shared"] = True
        if chance.uses("shares", 0.8):
            fields["capacity"] = self._capacity(bool(fields.get("shared")))
        if counters and chance.happens(0.85):
            drawn = {"slots": chance.one([1, 1, 2, 3, 3] if chance.is_tight else [0, 1, 2, 3])} | (
                {"lanes": chance.up_to(2)} if chance.happens(0.4) else {}
            )
            if chance.uses("flawed", 0.03):
                drawn["nothing"] = 1
            fields["consumes_counters"] = (make.draws("set", **drawn),)
        if chance.uses("taints", 0.3):
            effect = chance.one(["NoSchedule", "NoExecute", "None"])
            fields["taints"] = (DeviceTaint(key=chance.one(["hot", "old"]), value="yes", effect=effect),)
        if chance.uses("binding", 0.3):
            fields["binding_conditions"] = ("Attached",)
            fields["binding_failure_conditions"] = ("Lost",)
            fields["binds_to_node"] = chance.one([None, True])
        return fields

    def _attributes(self) -> dict[str, Any]:
        chance = self._chance
        numa = chance.one([0, 0, 0, 1, 1, 1, [0], [0, 1], [0, 1], [1, 2], "1", "v1.0.0", ["1", "2"]])
        root = chance.one(["a", "b", "c", ["a", "b"], ["a", "b"], ["b", "c"], "a", "b"])
        found = {}
        if chance.happens(0.92):
            found[chance.one(["dra.example/numa", "dra.example/numa", "dra.example/numa", "numa"])] = (
                make.attribute(numa)
            )
        if chance.happens(0.85):
            found["dra.example/root"] = make.attribute(root)
        return found

    def _capacity(self, shared: bool) -> dict[str, Any]:
        chance = self._chance
        total = chance.up_to(8, 2)
        if not shared:
            return {"mem": total}
        rule = chance.one(
            [
                None,
                None,
                make.policy(1),
                make.policy(2, values=(1, 2, 4)),
                make.policy(1, least=1, most=min(6, total)),
                make.policy("500m", least="500m", step="750m"),
                make.policy(2, least=2, most=total, step=2),
                make.policy(0, values=(0,)),
            ]
        )
        found = {"mem": make.capacity(total, rule)}
        if chance.happens(0.25):
            found["bw"] = make.capacity(3, make.policy(1))
        return found if chance.happens(0.93) else {}

    def _others(self, odd: str, page: ResourceSlice, said: dict[str, Any]) -> list[ResourceSlice]:
        """A slice beside a pool that is old, new, or makes it unsound."""
        elsewhere = {"node_name": "n2"}
        changes: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[Device, ...]]] = {
            "old": ({"generation": said["generation"] - 1}, {"node_name": "n1"}, page.spec.devices),
            "new": ({"generation": said["generation"] + 1}, elsewhere, ()),
            "disagrees": ({"count": said["count"] + 1}, elsewhere, ()),
            "twice": ({}, {"node_name": "n1"}, page.spec.devices[:1]),
            "namesake": ({}, elsewhere, page.spec.devices[:1]),
            "unequal": ({"pool_priority": 7}, elsewhere, ()),
        }
        if odd not in changes:
            return []
        change, where, devices = changes[odd]
        return [make.published(*devices, name=f"{page.metadata.name}-{odd}", **where, **{**said, **change})]


def _pool(item: ResourceSlice) -> tuple[str, str]:
    return (item.spec.driver, item.spec.pool.name)


def _pools_elsewhere(slices: Sequence[ResourceSlice]) -> set[tuple[str, str]]:
    """Pools that are not all on the first node."""
    return {_pool(item) for item in slices if item.spec.node_name != "n1"}


def _mirrored(chance: Chance, item: ResourceSlice) -> ResourceSlice:
    """The like of a node's slice for another node; it may say in another way whom it is for."""
    where: dict[str, Any] = {"node_name": "n2"}
    if chance.happens(0.35):
        where = {"node_selector": make.labelled({"zone": "z2"})}
    spec, pool = item.spec, item.spec.pool
    return make.published(
        *spec.devices,
        *spec.shared_counters,
        name=f"{item.metadata.name}-mirror",
        driver=spec.driver,
        pool=f"{pool.name}-mirror",
        generation=pool.generation,
        count=pool.resource_slice_count,
        pool_priority=pool.priority,
        priority=spec.priority,
        **where,
    )


def _held(chance: Chance, slices: Sequence[ResourceSlice]) -> tuple[ResourceClaim, ...]:
    """Who has what already."""
    claims: list[ResourceClaim] = []
    seen = set()
    for item in slices:
        for device in item.spec.devices:
            place = (item.spec.driver, item.spec.pool.name, device.name)
            if place in seen or not chance.happens(0.25):
                continue
            seen.add(place)
            for _ in range(chance.up_to(2, 1) if device.allow_multiple_allocations else 1):
                claims.append(
                    make.holding(_holding(chance, item, device, len(claims)), name=f"h{len(claims)}")
                )
    return tuple(claims)


def _holding(chance: Chance, item: ResourceSlice, device: Device, number: int) -> Any:
    fields: dict[str, Any] = {"driver": item.spec.driver, "pool": item.spec.pool.name}
    # A flag that changed since: whole devices that are shared now, and the other way round.
    if bool(device.allow_multiple_allocations) != chance.happens(0.25):
        fields["share"] = f"{number:08d}-0000-4000-8000-000000000000"
        if chance.happens(0.8):
            fields["consumed"] = {name: chance.up_to(2) for name in device.capacity}
    if chance.uses("admin", 0.3):
        fields["admin_access"] = True
    return make.result(device.name, **fields)
