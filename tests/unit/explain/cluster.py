"""A builder of small clusters, and an evaluator for the selectors of these tests.

A device is a line: a name and words.

    gpu-0 numa=0 memory:40Gi held=ml/old taint=gpu.example/maintenance:NoSchedule
    gpu-1 shared memory:10Gi share=ml/old/memory:7Gi
    part-0 draws=board/memory:20Gi

`name=value` is an attribute, `name:amount` a capacity; everything is of the driver `gpu.example`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    CapacityRequestPolicy,
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
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.explain import Diagnosis, diagnose
from dray.values.quantity import Quantity

DRIVER = "gpu.example"
Amounts = dict[str, Quantity]


class Cluster:
    """Nodes with one pool each, and who holds what."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.slices: list[ResourceSlice] = []
        self.held: list[ResourceClaim] = []
        self.classes = [device_class("gpu", f'device.driver == "{DRIVER}"')]

    def node(self, name: str, lines: str = "", *, driver: str = DRIVER, **pool: Any) -> Cluster:
        """A node with a pool of its name; `pool` may say `slices`, `generation` and `counters`."""
        if all(node.metadata.name != name for node in self.nodes):
            self.nodes.append(Node(metadata=ObjectMeta(name=name)))
        devices = [self._device(line.split(), driver, name) for line in lines.strip().splitlines()]
        generation, expected = pool.get("generation", 1), pool.get("slices", 1)
        counters = pool.get("counters")
        if counters:
            expected += 1
            self._publish(f"{name}-counters", driver, name, (generation, expected), shared_counters=counters)
        if devices:
            self._publish(name, driver, name, (generation, expected), devices=tuple(devices))
        return self

    def _publish(self, name: str, driver: str, node: str, pool: tuple[int, int], **content: Any) -> None:
        at = ResourcePool(name=node, generation=pool[0], resource_slice_count=pool[1])
        spec = ResourceSliceSpec(driver=driver, node_name=node, pool=at, **content)
        name = f"{name}-{driver}-{len(self.slices)}"
        self.slices.append(ResourceSlice(metadata=ObjectMeta(name=name), spec=spec))

    def _device(self, words: list[str], driver: str, pool: str) -> Device:
        name, *rest = words
        fields: dict[str, Any] = {"attributes": {}, "capacity": {}, "taints": (), "consumes_counters": ()}
        for word in rest:
            key, _, value = word.partition("=")
            if key == "held":
                self._hold(value, (driver, pool, name), {})
            elif key == "share":
                holder, _, amount = value.rpartition("/")
                self._hold(holder, (driver, pool, name), amounts(amount))
            elif key == "taint":
                taint, _, effect = value.rpartition(":")
                fields["taints"] += (DeviceTaint(key=taint, effect=effect),)
            elif key == "draws":
                group, _, amount = value.partition("/")
                drawn = {n: Counter(value=q) for n, q in amounts(amount).items()}
                fields["consumes_counters"] = (DeviceCounterConsumption(counter_set=group, counters=drawn),)
            elif word == "shared":
                fields["allow_multiple_allocations"] = True
            elif "=" in word:
                typed = {"int_value": int(value)} if value.isdigit() else {"string_value": value}
                fields["attributes"][key] = DeviceAttribute(**typed)
            else:
                fields["capacity"] |= {n: capacity(q) for n, q in amounts(word).items()}
        return Device(name=name, **fields)

    def _hold(self, holder: str, place: tuple[str, str, str], consumed: Amounts) -> None:
        driver, pool, device = place
        result = DeviceRequestAllocationResult(
            request="x", driver=driver, pool=pool, device=device, consumed_capacity=consumed
        )
        allocation = AllocationResult(devices=DeviceAllocationResult(results=(result,)))
        namespace, _, name = holder.partition("/")
        meta = ObjectMeta(name=name, namespace=namespace)
        self.held.append(ResourceClaim(metadata=meta, status=ResourceClaimStatus(allocation=allocation)))

    def add_class(self, name: str, *expressions: str) -> Cluster:
        self.classes.append(device_class(name, *expressions))
        return self

    @property
    def inventory(self) -> DeviceInventory:
        return DeviceInventory(
            self.slices, self.classes, DeviceUsage.from_claims(self.held), evaluate_selector
        )

    def diagnose(self, *claims: ResourceClaim, pod: str = "ml/train", **more: Any) -> Diagnosis:
        return diagnose(self.inventory, claims, self.nodes, pod=pod, **more)


def device_class(name: str, *expressions: str) -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors(expressions)))


def selectors(expressions: Sequence[str]) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in expressions)


def amounts(text: str) -> Amounts:
    """`memory:40Gi,cores:8` as quantities."""
    pairs = (pair.split(":") for pair in text.split(","))
    return {name: Quantity.parse(amount) for name, amount in pairs}


def capacity(amount: Quantity, policy: CapacityRequestPolicy | None = None) -> DeviceCapacity:
    return DeviceCapacity(value=amount, request_policy=policy)


def counter_set(name: str, text: str) -> tuple[CounterSet, ...]:
    return (CounterSet(name=name, counters={n: Counter(value=q) for n, q in amounts(text).items()}),)


def _build_fields(fields: dict[str, Any]) -> dict[str, Any]:
    every = fields.get("all", False)
    wanted = amounts(fields["capacity"]) if "capacity" in fields else None
    tolerated = tuple(DeviceToleration(key=key, operator="Exists") for key in fields.get("tolerates", ()))
    return {
        "device_class_name": fields.get("of", "gpu"),
        "selectors": selectors(fields.get("where", ())),
        "allocation_mode": "All" if every else "ExactCount",
        "count": 0 if every else fields.get("count", 1),
        "tolerations": tolerated,
        "capacity": CapacityRequirements(requests=wanted) if wanted is not None else None,
    }


def request(name: str = "gpu", **fields: Any) -> DeviceRequest:
    """A request; `from_claims` names the class, `where` are selectors; further: count, all, capacity,
    tolerates.
    """
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**_build_fields(fields)))


def first_of(name: str, **alternatives: dict[str, Any]) -> DeviceRequest:
    """A request with alternatives."""
    subs = tuple(DeviceSubRequest(name=sub, **_build_fields(fields)) for sub, fields in alternatives.items())
    return DeviceRequest(name=name, first_available=subs)


def claim(*requests: DeviceRequest, same: str = "", different: str = "", name: str = "gpus") -> ResourceClaim:
    """A claim of the namespace `ml`, with at most one constraint of each kind over everything."""
    constraints = [DeviceConstraint(match_attribute=f"{DRIVER}/{same}")] if same else []
    constraints += [DeviceConstraint(distinct_attribute=f"{DRIVER}/{different}")] if different else []
    devices = DeviceClaim(requests=requests or (request(),), constraints=tuple(constraints))
    meta = ObjectMeta(name=name, namespace="ml")
    return ResourceClaim(metadata=meta, spec=ResourceClaimSpec(devices=devices))


_CONDITION = re.compile(
    r'device\.(driver|(?:attributes|capacity)\["[\w.]+"\]\.(\w+)) (==|>=|<=) (?:quantity\()?"?([\w.]+)"?\)?'
)


_GUARD = re.compile(r'has\(device\.(attributes|capacity)\["[\w.]+"\]\.(\w+)\)')


def evaluate_selector(expression: str, driver: str, device: Device) -> bool | str:
    """Conditions joined by `&&`; a missing attribute or capacity is an error, as in CEL."""
    for text in expression.split(" && "):
        guard = _GUARD.fullmatch(text)
        if guard is not None:
            if guard[2] not in (device.capacity if guard[1] == "capacity" else device.attributes):
                return False
            continue
        condition = _CONDITION.fullmatch(text)
        if condition is None:
            return f"cannot read `{text}`"
        what, name, operator, right = condition.groups()
        left: Any = driver
        if what != "driver":
            held = device.capacity.get(name) if what.startswith("capacity") else device.attributes.get(name)
            if held is None:
                return f"no such key: {name}\n{text}"
            left = (
                held.value
                if isinstance(held, DeviceCapacity)
                else (held.get_typed_values() or ("", ("",)))[1][0]
            )
        if isinstance(left, Quantity):
            wanted: Any = Quantity.parse(right)
        else:
            wanted = int(right) if isinstance(left, int) else right
        if not {"==": left == wanted, ">=": left >= wanted, "<=": left <= wanted}[operator]:
            return False
    return True


def memory(operator: str, amount: str) -> str:
    """A selector on memory."""
    return f'device.capacity["{DRIVER}"].memory {operator} quantity("{amount}")'


def attribute(name: str, value: object) -> str:
    """A selector on an attribute."""
    text = value if isinstance(value, int) else f'"{value}"'
    return f'device.attributes["{DRIVER}"].{name} == {text}'
