"""Short ways to write the objects an allocation needs; tests of the allocator build worlds from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    CELDeviceSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.values.node_selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from dray.values.quantity import Quantity

DRIVER = "gpu.example"
POOL = "pool"
NODE = "n1"
NAMESPACE = "ml"

Amount = str | int


def quantity(amount: Amount) -> Quantity:
    return Quantity.parse(amount)


# --- devices ---


def attribute(value: Any) -> DeviceAttribute:
    """An attribute of the type its value has; a version is written `v1.2.3`, a list is a list."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    kind = _kind(items[0]) if items else "string"
    held = tuple(item[1:] if kind == "version" else item for item in items)
    member: dict[str, Any] = {f"{kind}_value": held[0]} if held else {}
    if isinstance(value, list | tuple):
        member = {f"{kind}_values": held}
    return DeviceAttribute(**member)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    return "version" if value[:1] == "v" and value[1:2].isdigit() else "string"


def attributes(**values: Any) -> dict[str, DeviceAttribute]:
    return {name: attribute(value) for name, value in values.items()}


def policy(
    default: Amount | None = None,
    *,
    values: Iterable[Amount] = (),
    least: Amount | None = None,
    most: Amount | None = None,
    step: Amount | None = None,
) -> CapacityRequestPolicy:
    """A request policy: a default, a set of values, or a range."""
    limits = None
    if least is not None or most is not None or step is not None:
        limits = CapacityRequestPolicyRange(min=_maybe(least), max=_maybe(most), step=_maybe(step))
    return CapacityRequestPolicy(
        default=_maybe(default), valid_values=tuple(quantity(v) for v in values), valid_range=limits
    )


def _maybe(amount: Amount | None) -> Quantity | None:
    return None if amount is None else quantity(amount)


def capacity(value: Amount, rule: CapacityRequestPolicy | None = None) -> DeviceCapacity:
    return DeviceCapacity(value=quantity(value), request_policy=rule)


def draws(counter_set: str = "set", **counters: Amount) -> DeviceCounterConsumption:
    return DeviceCounterConsumption(counter_set=counter_set, counters=_counters(counters))


def budget(name: str = "set", **counters: Amount) -> CounterSet:
    return CounterSet(name=name, counters=_counters(counters))


def _counters(counters: Mapping[str, Amount]) -> dict[str, Counter]:
    return {name: Counter(value=quantity(amount)) for name, amount in counters.items()}


def device(name: str, *, shared: bool = False, **fields: Any) -> Device:
    """A device; `numa=1` and the like become attributes, `mem="4Gi"` style goes through `capacity=`."""
    known = {key: fields.pop(key) for key in list(fields) if key in Device.__struct_fields__}
    known.setdefault("attributes", attributes(**fields))
    known["capacity"] = {
        key: value if isinstance(value, DeviceCapacity) else capacity(value)
        for key, value in known.get("capacity", {}).items()
    }
    return Device(name=name, allow_multiple_allocations=True if shared else None, **known)


def devices(*names: str, **fields: Any) -> tuple[Device, ...]:
    """Devices that differ only in name."""
    return tuple(device(name, **fields) for name in names)


# --- slices, classes, nodes ---


def published(
    *profile: Device | CounterSet, name: str = "slice", pool: str = POOL, driver: str = DRIVER, **where: Any
) -> ResourceSlice:
    """A slice on node n1 unless told otherwise; `generation`, `count`, `pool_priority` are of the pool."""
    reaching = ("node_name", "node_selector", "all_nodes", "per_device_node_selection")
    if not any(where.get(key) for key in reaching):
        where.setdefault("node_name", NODE)
    said = ResourcePool(
        name=pool,
        generation=where.pop("generation", 1),
        resource_slice_count=where.pop("count", 1),
        priority=where.pop("pool_priority", None),
    )
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=said,
            devices=tuple(item for item in profile if isinstance(item, Device)),
            shared_counters=tuple(item for item in profile if isinstance(item, CounterSet)),
            **where,
        ),
    )


def partitioned(counters: CounterSet, *profile: Device, **where: Any) -> list[ResourceSlice]:
    """A pool of two slices: its budget, and devices that draw from it."""
    name = where.pop("name", "slice")
    return [
        published(counters, name=f"{name}-counters", count=2, **where),
        published(*profile, name=f"{name}-devices", count=2, **where),
    ]


def labelled(*terms: Mapping[str, str]) -> NodeSelector:
    """A node selector: one term per mapping of labels."""
    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=tuple(
                    NodeSelectorRequirement(key=key, operator="In", values=(value,))
                    for key, value in term.items()
                )
            )
            for term in terms
        )
    )


def selectors(*expressions: str) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in expressions)


def device_class(name: str = "any", *expressions: str, config: tuple[Any, ...] = ()) -> DeviceClass:
    return DeviceClass(
        metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors(*expressions), config=config)
    )


def node(name: str = NODE, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


# --- claims ---


def asking(count: int | str = 1, *expressions: str, **fields: Any) -> dict[str, Any]:
    """What a request or an alternative asks for; `mem=3` style amounts go through `capacity={...}`."""
    amounts = fields.pop("capacity", None)
    if amounts is not None:
        amounts = CapacityRequirements(requests={key: quantity(value) for key, value in amounts.items()})
    return {
        "device_class_name": fields.pop("device_class", "any"),
        "selectors": selectors(*expressions),
        "allocation_mode": "All" if count == "All" else "ExactCount",
        "count": 0 if count == "All" else count,
        "capacity": amounts,
        **fields,
    }


def request(name: str, count: int | str = 1, *expressions: str, **fields: Any) -> DeviceRequest:
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**asking(count, *expressions, **fields)))


def first_of(name: str, *alternatives: tuple[str, Mapping[str, Any]]) -> DeviceRequest:
    """A request with alternatives, each a name and what it asks for."""
    subs = tuple(DeviceSubRequest(name=sub, **asked) for sub, asked in alternatives)
    return DeviceRequest(name=name, first_available=subs)


def match(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(match_attribute=attribute, requests=requests)


def distinct(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(distinct_attribute=attribute, requests=requests)


def claim(*parts: DeviceRequest | DeviceConstraint, name: str = "claim", config: Any = ()) -> ResourceClaim:
    """A claim of requests and constraints."""
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(
                requests=tuple(part for part in parts if isinstance(part, DeviceRequest)),
                constraints=tuple(part for part in parts if isinstance(part, DeviceConstraint)),
                config=tuple(config),
            )
        ),
    )


def result(
    device: str, pool: str = POOL, driver: str = DRIVER, **fields: Any
) -> DeviceRequestAllocationResult:
    """One device that somebody has; `share` and `consumed` make it a share."""
    share, consumed = fields.pop("share", None), fields.pop("consumed", {})
    return DeviceRequestAllocationResult(
        request=fields.pop("request", "r"),
        driver=driver,
        pool=pool,
        device=device,
        share_id=share,
        consumed_capacity={key: quantity(value) for key, value in consumed.items()},
        **fields,
    )


def holding(*results: DeviceRequestAllocationResult | str, name: str = "holder") -> ResourceClaim:
    """A claim that has devices already."""
    had = tuple(result(item) if isinstance(item, str) else item for item in results)
    allocation = AllocationResult(devices=DeviceAllocationResult(results=had))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE), status=ResourceClaimStatus(allocation=allocation)
    )
