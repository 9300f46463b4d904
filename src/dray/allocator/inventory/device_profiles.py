"""Device profiles: everything about a device except its name and its slice, interned.

Theory of operation: thousands of devices in a cluster differ only in name. Their *profile* (driver,
attributes, capacities, counters, taints) is interned, and everything that follows from the profile alone is
cached with it: whether a selector is true, the values of an attribute, what a share consumes.

Profiles exist as long as a slice or a shape refers to them, and each of their caches is bounded: drivers
publish new values, and people write new selectors, as long as a cluster runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from dray.allocator.checks.capacity import RequestedAmounts, compute_consumption
from dray.allocator.refusals import Refusal
from dray.allocator.withheld_devices import WithheldDevice
from dray.api.devices.device_value import DeviceReads, is_plain
from dray.api.json_text import write_json
from dray.api.resource import Device, ResourceSliceSpec
from dray.values.cache_bounds import CacheBound
from dray.values.quantity import Quantity, QuantityForm

SelectorResult = bool | str
"""True, false, or the error of the selector on the device."""

DeviceSelectorEvaluator = Callable[[str, str, Device], SelectorResult]
"""Evaluates an expression for a driver and a device."""


class GroupableSelector(Protocol):
    """How an expression is evaluated on plain devices (see `device_cel`).

    Those of one driver that agree in what it `reads` get the same result; None when it may read anything.
    `driver` is the only driver for whose devices it can be true, and with `driver_alone` it is. With a `text`
    it is true when the attribute it reads is that text, and false when it is another.
    """

    @property
    def reads(self) -> DeviceReads | None: ...

    @property
    def driver(self) -> str | None: ...

    @property
    def driver_alone(self) -> bool: ...

    @property
    def text(self) -> str | None: ...

    def evaluate(self, driver: str, device: Device, /) -> SelectorResult: ...


@runtime_checkable
class GroupingEvaluator(Protocol):
    """An evaluator that knows what an expression reads of a device."""

    def __call__(self, expression: str, driver: str, device: Device) -> SelectorResult: ...

    def compile_expression(self, expression: str) -> GroupableSelector:
        """How the expression is evaluated on plain devices."""


GroupResults = dict[tuple[str, str, Any], SelectorResult]
"""Results by expression, driver and what the expression reads; see `device_lists`, which bounds them."""

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")

_EMPTY_CACHE: dict[Any, Any] = {}
"""Stands for a cache without entries; never written to."""

SELECTOR_RESULTS = CacheBound("selector results", 256, "a device profile")
VALUE_SETS = CacheBound("values of attributes", 64, "a device profile")
SHARE_AMOUNTS = CacheBound("amounts of shares", 128, "a device profile")
SHARE_QUANTITIES = CacheBound("amounts of shares as quantities", 128, "a device profile")


def to_nanos(amount: Quantity | None) -> int:
    """An amount in nanos; zero for a missing one."""
    return amount.nanos if amount is not None else 0


def _sum_counter_draws(device: Device) -> tuple[tuple[str, str, int], ...]:
    """What a device draws from each counter: set, counter, nanos.

    A set that is named twice is drawn from twice. Negative amounts count as zero: they must not add to what
    others can take.
    """
    drawn: dict[tuple[str, str], int] = {}
    for part in device.consumes_counters:
        for name, counter in part.counters.items():
            place = (part.counter_set, name)
            drawn[place] = drawn.get(place, 0) + max(to_nanos(counter.value), 0)
    return tuple((group, name, nanos) for (group, name), nanos in drawn.items())


class DeviceProfile:
    """Everything about a device that selectors, constraints and amounts can see."""

    __slots__ = (
        "__weakref__",
        "_consumed",
        "_evaluator",
        "_quantities",
        "_results",
        "_value_sets",
        "accepts_any_amount",
        "capacity_limited",
        "counter_sets",
        "counters",
        "device",
        "driver",
        "plain",
        "shareable",
        "taints",
        "totals",
        "withheld",
    )

    def __init__(self, driver: str, device: Device, evaluator: DeviceSelectorEvaluator) -> None:
        self.driver = driver
        self.device = device
        self.shareable = bool(device.allow_multiple_allocations)
        self.plain = is_plain(driver, device)
        self.taints = tuple([taint for taint in device.taints if taint.effect in _BLOCKING_EFFECTS])
        self.withheld = device.withheld if isinstance(device, WithheldDevice) else None
        self.counters = _sum_counter_draws(device) if device.consumes_counters else ()
        self.counter_sets = tuple([drawn.counter_set for drawn in device.consumes_counters])
        self.totals: dict[str, int] = {}
        self.accepts_any_amount = True
        """Whether any amount up to the total can be requested, and none has to be."""
        for name, capacity in device.capacity.items():
            total = self.totals[name] = to_nanos(capacity.value)
            if capacity.request_policy is not None or total < 0:
                self.accepts_any_amount = False
        self.capacity_limited = self.shareable or not self.accepts_any_amount
        """Whether its own capacities may rule it out although nothing is requested of them."""
        self._evaluator = evaluator
        # Caches are created on first use: a large cluster has very many profiles, and most caches stay empty.
        self._results: dict[str, SelectorResult] = _EMPTY_CACHE
        self._value_sets: dict[str, frozenset[tuple[str, Any]]] = _EMPTY_CACHE
        self._consumed: dict[RequestedAmounts, dict[str, int] | Refusal] = _EMPTY_CACHE
        self._quantities: dict[int, tuple[dict[str, int], tuple[tuple[str, Quantity], ...]]] = _EMPTY_CACHE

    def evaluate(self, expression: str) -> SelectorResult:
        """Whether a selector is true of the device, or why it fails."""
        found = self._results.get(expression)
        if found is None:
            found = self._evaluator(expression, self.driver, self.device)
            if self._results is _EMPTY_CACHE:
                self._results = {}
            SELECTOR_RESULTS.put(self._results, expression, found)
        return found

    def get_values(self, attribute: str) -> frozenset[tuple[str, Any]]:
        """The typed values of an attribute, a scalar as a set of one; empty when the device lacks it."""
        found = self._value_sets.get(attribute)
        if found is None:
            if self._value_sets is _EMPTY_CACHE:
                self._value_sets = {}
            found = VALUE_SETS.put(self._value_sets, attribute, self._look_up(attribute))
        return found

    def _look_up(self, attribute: str) -> frozenset[tuple[str, Any]]:
        held = self.device.attributes.get(attribute)
        if held is None:
            domain, _, name = attribute.rpartition("/")
            held = self.device.attributes.get(name) if domain == self.driver else None
        typed = held.get_typed_values() if held is not None else None
        return frozenset((typed[0], value) for value in typed[1]) if typed is not None else frozenset()

    def compute_consumption(self, amounts: RequestedAmounts) -> dict[str, int] | Refusal:
        """What one share takes of each capacity for the requested amounts, or the refusal."""
        found = self._consumed.get(amounts)
        if found is None:
            if self._consumed is _EMPTY_CACHE:
                self._consumed = {}
            found = SHARE_AMOUNTS.put(self._consumed, amounts, compute_consumption(self.device, amounts))
        return found

    def to_quantities(self, consumed: dict[str, int]) -> tuple[tuple[str, Quantity], ...]:
        """What one share takes, as quantities in the format of the device's capacity."""
        # By identity, as the same few dicts come for every share; kept, or an id could be reused.
        found = self._quantities.get(id(consumed))
        if found is None:
            if self._quantities is _EMPTY_CACHE:
                self._quantities = {}
            pairs = tuple(
                (name, Quantity(nanos, _get_form(self.device.capacity[name].value)))
                for name, nanos in consumed.items()
            )
            found = SHARE_QUANTITIES.put(self._quantities, id(consumed), (consumed, pairs))
        return found[1]


def _get_form(amount: Quantity | None) -> QuantityForm:
    return QuantityForm.DECIMAL if amount is None else amount.form


class SliceProfiles:
    """The profiles of a slice in order; slices that publish the same devices share them."""

    __slots__ = ("__weakref__", "all_positions", "devices", "profiles")

    def __init__(self, devices: tuple[Device, ...], profiles: tuple[DeviceProfile, ...]) -> None:
        self.devices = devices
        self.profiles = profiles
        self.all_positions = tuple(range(len(devices)))
        """The positions of all devices."""


class DeviceProfileTable:
    """The interned profiles and device lists, and the results for groups of devices."""

    __slots__ = ("_by_devices", "_known", "_slices", "device_lists", "evaluator", "group_results", "grouping")

    def __init__(self, evaluator: DeviceSelectorEvaluator) -> None:
        self.evaluator = evaluator
        self.grouping = evaluator if isinstance(evaluator, GroupingEvaluator) else None
        self.device_lists: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.group_results: GroupResults = {}
        self._known: WeakValueDictionary[tuple[str, bytes], DeviceProfile] = WeakValueDictionary()
        self._slices: WeakValueDictionary[Any, SliceProfiles] = WeakValueDictionary()
        self._by_devices: WeakValueDictionary[tuple[str, int], SliceProfiles] = WeakValueDictionary()
        """By the identity of the device tuple, for slices that share it."""

    def __len__(self) -> int:
        return len(self._known)

    def intern_slice(self, spec: ResourceSliceSpec) -> SliceProfiles:
        """Intern the devices of a slice; slices that share their tuple are found at once."""
        driver, devices, counters = spec.driver, spec.devices, spec.shared_counters
        if not counters:
            shared = self._by_devices.get((driver, id(devices)))
            if shared is not None:
                return shared
        profiles = tuple([self.intern_device(driver, device) for device in devices])
        names = tuple([device.name for device in devices])
        key = (profiles, names, write_json(counters) if counters else driver)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = SliceProfiles(devices, profiles)
            if not counters:
                self._by_devices[driver, id(devices)] = found
        return found

    def intern_device(self, driver: str, device: Device) -> DeviceProfile:
        """Intern the profile of a device."""
        key = (driver, write_json(msgspec.structs.replace(device, name="")))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = DeviceProfile(driver, device, self.evaluator)
        return found
