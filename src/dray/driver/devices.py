"""Devices and pools as driver authors write them, in plain Python values.

Theory of operation: `device` converts strings, numbers and lists into the device of the API and validates it
at once, so that an error is raised where the mistake was made, and names the device and the field.

A warning about changes of allocated devices: the request policy of the time determined the size of the shares
that claims have. Do not change the policy of a capacity (`default`, `min`, `max`, `step`, `values`) while
claims hold the device; publish it under another name, or wait until it is free.
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
    """Which nodes reach a pool or device, when it is neither one node nor a selection by labels."""

    ALL_NODES = "every node"
    PER_DEVICE = "each device says so itself"


Nodes: TypeAlias = str | Mapping[str, str] | NodeSelector | Reach
"""A node's name, labels that a node must have, a selector, or a `Reach`."""


class InvalidDeviceError(InputError):
    """A device or pool is invalid; the message names it and the field."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a shared device, with the request policy for its shares.

    Either `values`, or `min` with `max` and `step`, or only a `default`. Do not change it while the device is
    allocated: see the warning above.
    """

    value: Amount
    default: Amount | None = None
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None
    values: Sequence[Amount] = ()


class DeviceFields(TypedDict, total=False):
    """The fields of a device besides its name."""

    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, Amount | Capacity]
    shared: bool
    """Whether several claims may have shares of it at the same time."""
    draws: Mapping[str, Mapping[str, Amount]]
    """What it consumes of the pool's counters: `{"gpu-0-memory": {"memory": "20Gi"}}`."""
    taints: Iterable[str | DeviceTaint]
    """`key=value:NoSchedule`, as kubectl writes taints."""
    nodes: Nodes
    """Its own nodes, in a pool whose `nodes` are `Reach.PER_DEVICE`."""
    binds_to_node: bool
    binding_conditions: Iterable[str]
    binding_failure_conditions: Iterable[str]


def device(name: str, **fields: Unpack[DeviceFields]) -> Device:
    """Build one device; raises `InvalidDeviceError` when a server would refuse it."""
    path, nodes = f"device `{name}`", fields.get("nodes")
    _check_known_fields(fields, path)
    built = Device(
        name=name,
        attributes={
            key: _to_attribute(value, f"{path}: attributes[{key}]")
            for key, value in fields.get("attributes", {}).items()
        },
        capacity={
            key: _to_capacity(value, f"{path}: capacity[{key}]")
            for key, value in fields.get("capacity", {}).items()
        },
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=_to_counters(amounts, f"{path}: draws[{key}]"))
            for key, amounts in fields.get("draws", {}).items()
        ),
        taints=tuple(_parse_taint(taint, f"{path}: taints") for taint in fields.get("taints", ())),
        binds_to_node=True if fields.get("binds_to_node") else None,
        binding_conditions=tuple(fields.get("binding_conditions", ())),
        binding_failure_conditions=tuple(fields.get("binding_failure_conditions", ())),
        allow_multiple_allocations=True if fields.get("shared") else None,
        node_name=nodes if isinstance(nodes, str) else None,
        node_selector=to_node_selector(nodes),
        all_nodes=True if nodes is Reach.ALL_NODES else None,
    )
    _validate_device(built, path, selects_nodes=nodes is not None)
    return built


@dataclass(frozen=True, slots=True)
class Slice:
    """Devices of a pool that are published in slices of their own, with their own priority."""

    devices: tuple[Device, ...]
    priority: int | None = None

    def __init__(self, devices: Iterable[Device], priority: int | None = None) -> None:
        object.__setattr__(self, "devices", _check_types((Device,), devices, "a slice"))
        object.__setattr__(self, "priority", priority)


@dataclass(frozen=True, slots=True, init=False)
class Pool:
    """A pool: devices under one name that are published and become visible together.

    `devices` are those without a priority of their own, `slices` groups of devices with one. Without `nodes`
    a pool belongs to the node that the driver runs on.
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
        items = _check_types((Device, Slice), devices, f"pool `{name}`")
        plain = tuple(each for each in items if isinstance(each, Device))
        grouped = tuple(each for each in items if isinstance(each, Slice))
        counter_sets = (
            CounterSet(name=key, counters=_to_counters(amounts, f"pool `{name}`: counters[{key}]"))
            for key, amounts in (counters or {}).items()
        )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "slices", ((Slice(plain),) if plain else ()) + grouped)
        object.__setattr__(self, "priority", priority)
        object.__setattr__(self, "counters", tuple(counter_sets))
        object.__setattr__(self, "nodes", nodes)
        _check_unique_names(self)
        _check_draws(self)

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order in which they are offered when priorities are equal."""
        return tuple(each for part in self.slices for each in part.devices)


def group_into_pools(devices: Iterable[Device | Pool], node: str) -> tuple[Pool, ...]:
    """Group what `devices()` yields into pools: devices without a pool belong to the node's own pool."""
    items = _check_types((Device, Pool), devices, "`devices`")
    without_pool = [each for each in items if isinstance(each, Device)]
    pools = [each for each in items if isinstance(each, Pool)]
    if without_pool:
        if any(pool.name == node for pool in pools):
            raise InvalidDeviceError(
                f"pool `{node}`: `devices` yields it as a pool, and yields devices without a "
                "pool, which belong "
                "to it too; put those devices into the pool"
            )
        pools.insert(0, Pool(node, without_pool))
    names = [pool.name for pool in pools]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise InvalidDeviceError(f"pool `{duplicates[0]}`: `devices` yields it twice")
    return tuple(pools)


def to_node_selector(nodes: Nodes | None) -> NodeSelector | None:
    """Return the selector for labels or a selector; None for everything else."""
    if isinstance(nodes, NodeSelector):
        return nodes
    if not isinstance(nodes, Mapping):
        return None
    requirements = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in nodes.items()
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=requirements),))


# --- conversion to the API's values ---

_VALUE_TYPES: Final[tuple[tuple[type, str, Callable[[Any], Any]], ...]] = (
    (bool, "bool", bool),  # before int: a bool is an int
    (int, "int", int),
    (Version, "version", lambda version: version.text),
    (str, "string", str),
)


def _to_attribute(value: Attribute, path: str) -> DeviceAttribute:
    if not isinstance(value, list | tuple):
        member, plain = _to_member(value, path)
        return DeviceAttribute(**{f"{member}_value": plain})
    if not value:
        raise InvalidDeviceError(f"{path}: a list must not be empty")
    members = [_to_member(each, f"{path}[{position}]") for position, each in enumerate(value)]
    names = sorted({member for member, _ in members})
    if len(names) > 1:
        raise InvalidDeviceError(
            f"{path}: a list holds values of one type, this one has {' and '.join(names)}"
        )
    plain_values: Any = tuple(plain for _, plain in members)
    return DeviceAttribute(**{f"{names[0]}_values": plain_values})


def _to_member(value: object, path: str) -> tuple[str, Any]:
    for kind, member, plain in _VALUE_TYPES:
        if isinstance(value, kind):
            return member, plain(value)
    raise InvalidDeviceError(
        f"{path}: expected a text, a whole number, a bool, a version or a list of them, got `{value!r}`"
    )


def _to_capacity(value: Amount | Capacity, path: str) -> DeviceCapacity:
    if not isinstance(value, Capacity):
        return DeviceCapacity(value=_to_quantity(value, path))
    bounds = None
    if value.min is not None or value.max is not None or value.step is not None:
        bounds = CapacityRequestPolicyRange(
            min=_to_optional_quantity(value.min, f"{path}.min"),
            max=_to_optional_quantity(value.max, f"{path}.max"),
            step=_to_optional_quantity(value.step, f"{path}.step"),
        )
    policy = CapacityRequestPolicy(
        default=_to_optional_quantity(value.default, f"{path}.default"),
        valid_values=tuple(_to_quantity(each, f"{path}.values") for each in value.values),
        valid_range=bounds,
    )
    return DeviceCapacity(
        value=_to_quantity(value.value, path),
        request_policy=None if policy == CapacityRequestPolicy() else policy,
    )


def _to_optional_quantity(value: Amount | None, path: str) -> Quantity | None:
    return None if value is None else _to_quantity(value, path)


def _to_quantity(value: Amount, path: str) -> Quantity:
    if isinstance(value, Quantity):
        return value
    try:
        return Quantity.parse(value)
    except (QuantityError, TypeError) as wrong:
        raise InvalidDeviceError(f"{path}: expected an amount, for example `80Gi`: {wrong}") from None


def _to_counters(amounts: Mapping[str, Amount], path: str) -> dict[str, Counter]:
    return {key: Counter(value=_to_quantity(each, f"{path}[{key}]")) for key, each in amounts.items()}


def _parse_taint(taint: str | DeviceTaint, path: str) -> DeviceTaint:
    if isinstance(taint, DeviceTaint):
        return taint
    key_and_value, colon, effect = taint.rpartition(":")
    if not colon:
        raise InvalidDeviceError(f"{path}: expected `key=value:effect` or `key:effect`, got `{taint}`")
    key, _, value = key_and_value.partition("=")
    return DeviceTaint(key=key, value=value, effect=effect)


# --- validation ---


def _validate_device(built: Device, path: str, *, selects_nodes: bool) -> None:
    resource_slice = ResourceSlice(
        spec=ResourceSliceSpec(
            driver="driver.example.com",
            pool=ResourcePool(name="pool", generation=1, resource_slice_count=1),
            per_device_node_selection=True if selects_nodes else None,
            all_nodes=None if selects_nodes else True,
            devices=(built,),
        )
    )
    problems = [
        str(problem).removeprefix("spec.devices[0]").lstrip(".")
        for problem in validate_create(resource_slice)
        if problem.path.startswith("spec.devices")
    ]
    if problems:
        raise InvalidDeviceError(f"{path}: {'; '.join(problems)}")


def _check_unique_names(pool: Pool) -> None:
    seen: set[str] = set()
    for each in pool.devices:
        if each.name in seen:
            raise InvalidDeviceError(f"pool `{pool.name}`: device `{each.name}` is in it twice")
        seen.add(each.name)


def _check_draws(pool: Pool) -> None:
    """Check that consumed counters exist: no server does, and no claim would ever get such a device."""
    counter_sets = {each.name: each.counters for each in pool.counters}
    for each in pool.devices:
        for draw in each.consumes_counters:
            available = counter_sets.get(draw.counter_set, {})
            unknown = [f"`{name}`" for name in draw.counters if name not in available]
            if unknown:
                raise InvalidDeviceError(
                    f"pool `{pool.name}`: device `{each.name}` draws {', '.join(unknown)} from "
                    f"`{draw.counter_set}`, which the pool's `counters` do not have"
                )


def _check_known_fields(fields: Mapping[str, Any], path: str) -> None:
    """Refuse misspelt fields: without its counters a device may be allocated twice."""
    known = DeviceFields.__annotations__
    for name in fields:
        if name not in known:
            suggestions = difflib.get_close_matches(name, known, n=1) or sorted(known)
            meant = ", ".join(f"`{each}`" for each in suggestions)
            raise InvalidDeviceError(f"{path}: there is no `{name}`; did you mean {meant}?")


def _check_types(types: tuple[type, ...], values: Iterable[Any], path: str) -> tuple[Any, ...]:
    """Return the values as a tuple; raises `InvalidDeviceError` when one has another type."""
    checked = tuple(values)
    for each in checked:
        if not isinstance(each, types):
            expected = " and ".join(f"`{each_type.__name__}`" for each_type in types)
            raise InvalidDeviceError(
                f"{path}: expected values of {expected} (`device(...)` makes one), got `{each!r}`"
            )
    return checked
