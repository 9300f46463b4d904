"""What a device is, apart from its name and its place: the same content is judged once.

Theory of operation: thousands of devices in a cluster differ only in name. Their *content* (driver,
attributes, capacities, counters, taints) is interned, and everything that follows from content alone
is remembered with it: whether a selector is true, the values of an attribute, what a share consumes.

Contents are known for as long as a slice or a shape has them, and what each of them remembers is bounded:
drivers publish new values, and people write new selectors, for as long as a cluster lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import msgspec

from dray.allocator.checks.capacity import Amounts, consumption
from dray.allocator.refusals import Refusal
from dray.allocator.withheld_devices import WithheldDevice
from dray.api.devices.device_value import DeviceReads, is_plain
from dray.api.json_text import write_json
from dray.api.resource import Device, ResourceSliceSpec
from dray.values.cache_bounds import Bound
from dray.values.quantity import Form, Quantity

Verdict = bool | str
"""True, false, or why the selector fails on the device."""

Judge = Callable[[str, str, Device], Verdict]
"""Expression, driver, device: the verdict."""


class Reading(Protocol):
    """How an expression is judged on plain devices (see `devicevalue`).

    Those of one driver that agree in what it `reads` get the same verdict; None when it may read anything.
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

    def judge(self, driver: str, device: Device, /) -> Verdict: ...


@runtime_checkable
class ReadingJudge(Protocol):
    """A judge that can tell what an expression reads of a device."""

    def __call__(self, expression: str, driver: str, device: Device) -> Verdict: ...

    def reading(self, expression: str) -> Reading:
        """How the expression is judged on plain devices."""


GroupVerdicts = dict[tuple[str, str, Any], Verdict]
"""Verdicts by expression, driver and what the expression reads; see `devicelist`, which bounds them."""

_BLOCKING = ("NoSchedule", "NoExecute")

_NOTHING: dict[Any, Any] = {}
"""Stands for a cache that has no entry yet; nobody writes to it."""

VERDICTS = Bound("selector results", 256, "a device content")
VALUE_SETS = Bound("values of attributes", 64, "a device content")
CONSUMED = Bound("amounts of shares", 128, "a device content")
WRITTEN = Bound("amounts of shares as quantities", 128, "a device content")


def nanos_of(amount: Quantity | None) -> int:
    """An amount in nanos; what is not said is nothing."""
    return amount.nanos if amount is not None else 0


def _drawn(device: Device) -> tuple[tuple[str, str, int], ...]:
    """What a device draws from each counter: set, counter, nanos.

    A set that is named twice is drawn from twice; what is below nothing must not make room for others.
    """
    drawn: dict[tuple[str, str], int] = {}
    for part in device.consumes_counters:
        for name, counter in part.counters.items():
            place = (part.counter_set, name)
            drawn[place] = drawn.get(place, 0) + max(nanos_of(counter.value), 0)
    return tuple((group, name, nanos) for (group, name), nanos in drawn.items())


class Content:
    """Everything about a device that selectors, constraints and amounts can see."""

    __slots__ = (
        "__weakref__",
        "_consumed",
        "_judge",
        "_sets",
        "_verdicts",
        "_written",
        "counter_sets",
        "counters",
        "device",
        "driver",
        "gives_freely",
        "limited",
        "plain",
        "shareable",
        "taints",
        "totals",
        "withheld",
    )

    def __init__(self, driver: str, device: Device, judge: Judge) -> None:
        self.driver = driver
        self.device = device
        self.shareable = bool(device.allow_multiple_allocations)
        self.plain = is_plain(driver, device)
        self.taints = tuple([taint for taint in device.taints if taint.effect in _BLOCKING])
        self.withheld = device.withheld if isinstance(device, WithheldDevice) else None
        self.counters = _drawn(device) if device.consumes_counters else ()
        self.counter_sets = tuple([drawn.counter_set for drawn in device.consumes_counters])
        self.totals: dict[str, int] = {}
        self.gives_freely = True
        """Whether any amount up to the total can be asked, and none need be."""
        for name, capacity in device.capacity.items():
            total = self.totals[name] = nanos_of(capacity.value)
            if capacity.request_policy is not None or total < 0:
                self.gives_freely = False
        self.limited = self.shareable or not self.gives_freely
        """Whether its own capacities may rule it out, although nothing is asked of them."""
        self._judge = judge
        # Most contents are never asked most questions, and a large cluster has very many contents.
        self._verdicts: dict[str, Verdict] = _NOTHING
        self._sets: dict[str, frozenset[tuple[str, Any]]] = _NOTHING
        self._consumed: dict[Amounts, dict[str, int] | Refusal] = _NOTHING
        self._written: dict[int, tuple[dict[str, int], tuple[tuple[str, Quantity], ...]]] = _NOTHING

    def verdict(self, expression: str) -> Verdict:
        """Whether a selector is true of the device, or why it fails."""
        found = self._verdicts.get(expression)
        if found is None:
            found = self._judge(expression, self.driver, self.device)
            if self._verdicts is _NOTHING:
                self._verdicts = {}
            VERDICTS.keep(self._verdicts, expression, found)
        return found

    def values(self, attribute: str) -> frozenset[tuple[str, Any]]:
        """The typed values of an attribute, a scalar as a set of one; empty when the device lacks it."""
        found = self._sets.get(attribute)
        if found is None:
            if self._sets is _NOTHING:
                self._sets = {}
            found = VALUE_SETS.keep(self._sets, attribute, self._look_up(attribute))
        return found

    def _look_up(self, attribute: str) -> frozenset[tuple[str, Any]]:
        held = self.device.attributes.get(attribute)
        if held is None:
            domain, _, name = attribute.rpartition("/")
            held = self.device.attributes.get(name) if domain == self.driver else None
        typed = held.held() if held is not None else None
        return frozenset((typed[0], value) for value in typed[1]) if typed is not None else frozenset()

    def consumed(self, amounts: Amounts) -> dict[str, int] | Refusal:
        """What one share takes of each capacity when these amounts are asked, or why it cannot."""
        found = self._consumed.get(amounts)
        if found is None:
            if self._consumed is _NOTHING:
                self._consumed = {}
            found = CONSUMED.keep(self._consumed, amounts, consumption(self.device, amounts))
        return found

    def written(self, consumed: dict[str, int]) -> tuple[tuple[str, Quantity], ...]:
        """What one share takes, as quantities in the form the device writes its capacity."""
        # By identity, as the same few dicts come back for every share; kept, or an id could be reused.
        found = self._written.get(id(consumed))
        if found is None:
            if self._written is _NOTHING:
                self._written = {}
            pairs = tuple(
                (name, Quantity(nanos, _form(self.device.capacity[name].value)))
                for name, nanos in consumed.items()
            )
            found = WRITTEN.keep(self._written, id(consumed), (consumed, pairs))
        return found[1]


def _form(amount: Quantity | None) -> Form:
    return Form.DECIMAL if amount is None else amount.form


class SliceContents:
    """The devices of a slice in order; slices that publish the same devices have the same one."""

    __slots__ = ("__weakref__", "contents", "devices", "everything")

    def __init__(self, devices: tuple[Device, ...], contents: tuple[Content, ...]) -> None:
        self.devices = devices
        self.contents = contents
        self.everything = tuple(range(len(devices)))
        """The positions of all devices."""


class Contents:
    """All contents that somebody has, each once; their lists, and what was said of groups of them."""

    __slots__ = ("_known", "_sharing", "_slices", "judge", "lists", "reading", "verdicts")

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.reading = judge if isinstance(judge, ReadingJudge) else None
        self.lists: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.verdicts: GroupVerdicts = {}
        self._known: WeakValueDictionary[tuple[str, bytes], Content] = WeakValueDictionary()
        self._slices: WeakValueDictionary[Any, SliceContents] = WeakValueDictionary()
        self._sharing: WeakValueDictionary[tuple[str, int], SliceContents] = WeakValueDictionary()
        """By the identity of their devices, for slices that share them."""

    def __len__(self) -> int:
        return len(self._known)

    def of_slice(self, spec: ResourceSliceSpec) -> SliceContents:
        """The devices of a slice; slices that share theirs are found at once."""
        driver, devices, counters = spec.driver, spec.devices, spec.shared_counters
        if not counters:
            shared = self._sharing.get((driver, id(devices)))
            if shared is not None:
                return shared
        contents = tuple([self.of(driver, device) for device in devices])
        names = tuple([device.name for device in devices])
        key = (contents, names, write_json(counters) if counters else driver)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = SliceContents(devices, contents)
            if not counters:
                self._sharing[driver, id(devices)] = found
        return found

    def of(self, driver: str, device: Device) -> Content:
        """The content of a device."""
        key = (driver, write_json(msgspec.structs.replace(device, name="")))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Content(driver, device, self.judge)
        return found
