"""Devices and pools as a driver's author writes them, in plain Python values.

Theory of operation: `device` turns texts, numbers and lists into the device of the API and has it judged by
the rules of the API at once, so that a mistake is told where it was made, with the device and the field.

A warning for whoever changes devices while they are allocated: shares that were given out were measured by
the request policy of that time. Do not change the policy of a capacity (`default`, `min`, `max`, `step`,
`values`) while claims hold the device; publish it under another name, or wait until it is free.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from dray.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.api.validation import validate_create
from dray.errors import InputError
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.values.quantity import Quantity
from dray.values.quantity_text import QuantityError
from dray.values.semver import Version

Amount: TypeAlias = str | int | Quantity
Scalar: TypeAlias = str | int | bool | Version
Attribute: TypeAlias = Scalar | Sequence[Scalar]


class Reach(Enum):
    """Which nodes reach something, where that is not one node or a selection by labels."""

    ALL_NODES = "every node"
    PER_DEVICE = "each device says so itself"


Nodes: TypeAlias = str | Mapping[str, str] | NodeSelector | Reach
"""A node's name, labels that a node must have, a selector, or a `Reach`."""


class InvalidDeviceError(InputError):
    """A device or pool that no server would take; the message names it and the field."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount of a shared device, with what one share may take of it.

    Either `values`, or `min` with `max` and `step`, or only a `default`. Not to be changed while the device
    is allocated: see the warning above.
    """

    value: Amount
    default: Amount | None = None
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None
    values: Sequence[Amount] = ()


class DeviceFields(TypedDict, total=False):
    """What can be said about a device besides its name."""

    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, Amount | Capacity]
    shared: bool
    """Several claims may have shares of it at the same time."""
    draws: Mapping[str, Mapping[str, Amount]]
    """What it takes from the pool's counters: `{"gpu-0-memory": {"memory": "20Gi"}}`."""
    taints: Iterable[str | DeviceTaint]
    """`key=value:NoSchedule`, as kubectl writes taints."""
    nodes: Nodes
    """Its own nodes, in a pool whose `nodes` are `Reach.PER_DEVICE`."""
    binds_to_node: bool
    binding_conditions: Iterable[str]
    binding_failure_conditions: Iterable[str]


def device(name: str, **fields: Unpack[DeviceFields]) -> Device:
    """One device; `InvalidDeviceError` says at once what no server would take."""
    place, nodes = f"device `{name}`", fields.get("nodes")
    _check_known_fields(fields, place)
    made = Device(
        name=name,
        attributes={
            key: _to_attribute(value, f"{place}: attributes[{key}]")
            for key, value in fields.get("attributes", {}).items()
        },
        capacity={
            key: _to_capacity(value, f"{place}: capacity[{key}]")
            for key, value in fields.get("capacity", {}).items()
        },
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=_to_counters(drawn, f"{place}: draws[{key}]"))
            for key, drawn in fields.get("draws", {}).items()
        ),
        taints=tuple(_parse_taint(taint, f"{place}: taints") for taint in fields.get("taints", ())),
        binds_to_node=True if fields.get("binds_to_node") else None,
        binding_conditions=tuple(fields.get("binding_conditions", ())),
        binding_failure_conditions=tuple(fields.get("binding_failure_conditions", ())),
        allow_multiple_allocations=True if fields.get("shared") else None,
        node_name=nodes if isinstance(nodes, str) else None,
        node_selector=to_node_selector(nodes),
        all_nodes=True if nodes is Reach.ALL_NODES else None,
    )
    _validate_device(made, place, chooses_nodes=nodes is not None)
    return made


@dataclass(frozen=True, slots=True)
class Slice:
    """Devices of a pool that belong together on pages of their own, with their own priority."""

    devices: tuple[Device, ...]
    priority: int | None = None

    def __init__(self, devices: Iterable[Device], priority: int | None = None) -> None:
        object.__setattr__(self, "devices", _check_types((Device,), devices, "a slice"))
        object.__setattr__(self, "priority", priority)


@dataclass(frozen=True, slots=True, init=False)
class Pool:
    """A pool: devices under one name that are published and become visible together.

    `devices` are the ones without a priority of their own, `slices` groups of devices with one. Without
    `nodes` a pool belongs to the node that the driver runs on.
    """

    name: str
    slices: tuple[Slice, ...]
    priority: int | None
    counters: tuple[CounterSet, ...]
    nodes: Nodes | None

    def __init__(
        self,
        name: str,
        devices: Iterable[Device | Slice] = (),
        *,
        priority: int | None = None,
        counters: Mapping[str, Mapping[str, Amount]] | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        given = _check_types((Device, Slice), devices, f"pool `{name}`")
        plain = tuple(each for each in given if isinstance(each, Device))
        grouped = tuple(each for each in given if isinstance(each, Slice))
        sets = (
            CounterSet(name=key, counters=_to_counters(amounts, f"pool `{name}`: counters[{key}]"))
            for key, amounts in (counters or {}).items()
        )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "slices", ((Slice(plain),) if plain else ()) + grouped)
        object.__setattr__(self, "priority", priority)
        object.__setattr__(self, "counters", tuple(sets))
        object.__setattr__(self, "nodes", nodes)
        _check_unique_names(self)
        _check_draws(self)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order in which they are offered when priorities are equal."""
        return tuple(each for part in self.slices for each in part.devices)


def group_into_pools(devices: Iterable[Device | Pool], node: str) -> tuple[Pool, ...]:
    """What `devices()` yields, as pools: devices without a pool are those of the node's own pool."""
    given = _check_types((Device, Pool), devices, "`devices`")
    loose = [each for each in given if isinstance(each, Device)]
    pools = [each for each in given if isinstance(each, Pool)]
    if loose:
        if any(pool.name == node for pool in pools):
            raise InvalidDeviceError(
                f"pool `{node}`: it holds the devices that were told without a pool, and was told as a "
                "pool too; put those devices into it"
            )
        pools.insert(0, Pool(node, loose))
    names = [pool.name for pool in pools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidDeviceError(f"pool `{twice[0]}`: told twice")
    return tuple(pools)


def to_node_selector(nodes: Nodes | None) -> NodeSelector | None:
    """The selector that labels or a selector stand for; None for everything else."""
    if isinstance(nodes, NodeSelector):
        return nodes
    if not isinstance(nodes, Mapping):
        return None
    wanted = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in nodes.items()
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=wanted),))


# --- plain values to those of the API ---

_VALUE_TYPES: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (bool, "bool", bool),  # before int: a bool is one
    (int, "int", int),
    (Version, "version", lambda version: version.text),
    (str, "string", str),
)


def _to_attribute(value: Attribute, place: str) -> DeviceAttribute:
    if not isinstance(value, list | tuple):
        member, plain = _to_member(value, place)
        return DeviceAttribute(**{f"{member}_value": plain})
    if not value:
        raise InvalidDeviceError(f"{place}: a list must not be empty")
    members = [_to_member(each, f"{place}[{position}]") for position, each in enumerate(value)]
    names = sorted({member for member, _ in members})
    if len(names) > 1:
        raise InvalidDeviceError(
            f"{place}: a list holds values of one type, this one has {' and '.join(names)}"
        )
    plain_values: Any = tuple(plain for _, plain in members)
    return DeviceAttribute(**{f"{names[0]}_values": plain_values})


def _to_member(value: object, place: str) -> tuple[str, Any]:
    for kind, member, plain in _VALUE_TYPES:
        if isinstance(value, kind):
            return member, plain(value)
    raise InvalidDeviceError(
        f"{place}: expected a text, a whole number, a bool, a version or a list of them, got `{value!r}`"
    )


def _to_capacity(value: Amount | Capacity, place: str) -> DeviceCapacity:
    if not isinstance(value, Capacity):
        return DeviceCapacity(value=_to_quantity(value, place))
    bounds = None
    if value.min is not None or value.max is not None or value.step is not None:
        bounds = CapacityRequestPolicyRange(
            min=_to_optional_quantity(value.min, f"{place}.min"),
            max=_to_optional_quantity(value.max, f"{place}.max"),
            step=_to_optional_quantity(value.step, f"{place}.step"),
        )
    policy = CapacityRequestPolicy(
        default=_to_optional_quantity(value.default, f"{place}.default"),
        valid_values=tuple(_to_quantity(each, f"{place}.values") for each in value.values),
        valid_range=bounds,
    )
    return DeviceCapacity(
        value=_to_quantity(value.value, place),
        request_policy=None if policy == CapacityRequestPolicy() else policy,
    )


def _to_optional_quantity(value: Amount | None, place: str) -> Quantity | None:
    return None if value is None else _to_quantity(value, place)


def _to_quantity(value: Amount, place: str) -> Quantity:
    if isinstance(value, Quantity):
        return value
    try:
        return Quantity.parse(value)
    except (QuantityError, TypeError) as wrong:
        raise InvalidDeviceError(f"{place}: expected an amount, for example `80Gi`: {wrong}") from None


def _to_counters(amounts: Mapping[str, Amount], place: str) -> dict[str, Counter]:
    return {key: Counter(value=_to_quantity(each, f"{place}[{key}]")) for key, each in amounts.items()}


def _parse_taint(taint: str | DeviceTaint, place: str) -> DeviceTaint:
    if isinstance(taint, DeviceTaint):
        return taint
    what, colon, effect = taint.rpartition(":")
    if not colon:
        raise InvalidDeviceError(f"{place}: expected `key=value:effect` or `key:effect`, got `{taint}`")
    key, _, value = what.partition("=")
    return DeviceTaint(key=key, value=value, effect=effect)


# --- judging at once ---


def _validate_device(built: Device, place: str, *, chooses_nodes: bool) -> None:
    page = ResourceSlice(
        spec=ResourceSliceSpec(
            driver="driver.example.com",
            pool=ResourcePool(name="pool", generation=1, resource_slice_count=1),
            per_device_node_selection=True if chooses_nodes else None,
            all_nodes=None if chooses_nodes else True,
            devices=(built,),
        )
    )
    problems = [
        str(problem).removeprefix("spec.devices[0]").lstrip(".")
        for problem in validate_create(page)
        if problem.path.startswith("spec.devices")
    ]
    if problems:
        raise InvalidDeviceError(f"{place}: {'; '.join(problems)}")


def _check_unique_names(pool: Pool) -> None:
    seen: set[str] = set()
    for each in pool.devices:
        if each.name in seen:
            raise InvalidDeviceError(f"pool `{pool.name}`: device `{each.name}` is there twice")
        seen.add(each.name)


def _check_draws(pool: Pool) -> None:
    """Nobody else would say it: a device that draws from what is not there is never given to anybody."""
    sets = {each.name: each.counters for each in pool.counters}
    for each in pool.devices:
        for draw in each.consumes_counters:
            unknown = [f"`{name}`" for name in draw.counters if name not in sets.get(draw.counter_set, {})]
            if unknown:
                raise InvalidDeviceError(
                    f"pool `{pool.name}`: device `{each.name}` draws {', '.join(unknown)} from "
                    f"`{draw.counter_set}`, which the pool's `counters` do not have"
                )


def _check_known_fields(fields: Mapping[str, Any], place: str) -> None:
    """What is misspelt must not be passed over: without its counters a device may be given out twice."""
    known = DeviceFields.__annotations__
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or sorted(known)
            meant = ", ".join(f"`{each}`" for each in near)
            raise InvalidDeviceError(f"{place}: there is no `{name}`; did you mean {meant}?")


def _check_types(kinds: tuple[type, ...], given: Iterable[Any], place: str) -> tuple[Any, ...]:
    """What was given; `InvalidDeviceError` when something else is among it."""
    found = tuple(given)
    for each in found:
        if not isinstance(each, kinds):
            expected = " and ".join(f"`{kind.__name__}`" for kind in kinds)
            raise InvalidDeviceError(
                f"{place}: expected values of {expected} (`device(...)` makes one), got `{each!r}`"
            )
    return found
