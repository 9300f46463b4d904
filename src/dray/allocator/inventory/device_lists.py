"""Device lists: the devices of a pool in order, without names, and which of them match a request alternative.

Theory of operation: a selector mostly reads the driver and one or two attributes, and the devices of a pool
have few distinct values of them. So devices are grouped by what a selector reads, and it is evaluated once
per group; a selector that requires another driver is not evaluated at all. Whether a device matches does not
depend on usage, so the result is kept here and outlives every change of usage; nodes whose pools have the
same devices share one list.

Devices are evaluated in batches: a search that takes the first of a thousand devices should not pay for the
others. What a batch evaluates ahead of the search shows only when the search gets there.

Every result equals that of `DeviceProfile.evaluate`; grouping only changes how often that is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.checks import taints
from dray.allocator.inventory.device_profiles import (
    DeviceProfile,
    DeviceProfileTable,
    GroupableSelector,
    GroupingEvaluator,
    GroupResults,
)
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import RequestAlternative
from dray.api.devices.device_value import DeviceRead, DeviceReads, has_domain
from dray.values.bit_masks import iter_bits
from dray.values.cache_bounds import CacheBound

SUITABLE_DEVICES = CacheBound("devices that match alternatives", 128, "a list of devices")
DEVICE_GROUPS = CacheBound("devices by what selectors read", 64, "a list of devices")
GROUP_RESULTS = CacheBound("selector results on groups of devices", 8_192, "all profiles of an inventory")

FATAL_REASONS = frozenset({RefusalReason.BROKEN_SELECTOR, RefusalReason.CAPACITY_UNREPRESENTABLE})
"""Reasons that end a search: the device cannot be evaluated."""

BATCH_SIZE = 24
"""Devices evaluated at once; more than most pools have."""


class DeviceGroups:
    """The plain devices of a list, grouped by what an expression reads of them."""

    __slots__ = ("masks", "size")

    def __init__(self) -> None:
        self.size = 0
        self.masks: dict[Any, int] = {}

    def extend(self, driver: str, reads: DeviceReads, batch: Sequence[DeviceProfile], plain: int) -> None:
        """Sort the next devices into groups."""
        masks = self.masks
        bit = 1 << self.size
        self.size += len(batch)
        columns = [_read_keys(driver, read, batch) for read in reads]
        for key in columns[0] if len(columns) == 1 else zip(*columns, strict=True):
            if bit & plain:
                masks[key] = masks.get(key, 0) | bit
            bit <<= 1


class Suitability:
    """Which devices of a list match an alternative, as far as they were evaluated.

    `mask`: devices that can be taken. `matching`: also those that match but cannot be taken. `faulty`: those
    that cannot be evaluated.
    """

    __slots__ = ("evaluated", "faulty", "mask", "matching")

    def __init__(self) -> None:
        self.evaluated = self.mask = self.matching = self.faulty = 0


OffsetList = tuple[int, "DeviceList"]
"""A list, and the number of its first candidate."""


class DeviceList:
    """The devices of a pool that a node can use, in order, with the results of evaluations."""

    __slots__ = (
        "__weakref__",
        "_excluded",
        "_group_results",
        "_grouping",
        "_groups",
        "_hidden",
        "_plain",
        "_suitable",
        "_tainted",
        "_unrestricted",
        "all_plain",
        "driver",
        "profiles",
    )

    def __init__(
        self,
        profiles: tuple[DeviceProfile, ...],
        multi_term: int,
        grouping: GroupingEvaluator | None,
        group_results: GroupResults,
    ) -> None:
        self.profiles = profiles
        self.driver = profiles[0].driver if profiles else ""
        self._excluded = multi_term
        self._hidden = self._tainted = 0
        self._unrestricted = self._plain = (1 << len(profiles)) - 1
        self._build_masks()
        self.all_plain = self._plain.bit_count() == len(profiles)
        self._grouping = grouping
        self._group_results = group_results
        self._groups: dict[DeviceReads, DeviceGroups] = {}
        self._suitable: dict[Any, Suitability] = {}

    def _build_masks(self) -> None:
        """Build the masks of devices that need separate handling."""
        for place, profile in enumerate(self.profiles):
            if profile.withheld is not None:
                self._excluded |= 1 << place
                self._hidden |= (profile.withheld is RefusalReason.BINDING_CONDITIONS) << place
            if profile.taints:
                self._tainted |= 1 << place
            if not profile.accepts_any_amount:
                self._unrestricted ^= 1 << place
            if not profile.plain:
                self._plain ^= 1 << place

    def evaluate(self, alternative: RequestAlternative, position: int) -> tuple[Suitability, int]:
        """Which devices match, evaluated beyond a position, and how many devices this call evaluated."""
        found = self._suitable.get(alternative.key)
        if found is None:
            found = SUITABLE_DEVICES.put(self._suitable, alternative.key, Suitability())
        if found.evaluated > position:
            return found, 0
        self._extend(found, alternative)
        return found, found.evaluated - position

    def find_required_driver(self, alternative: RequestAlternative) -> str | None:
        """The only driver whose plain devices can match an alternative, if there is one."""
        if self._grouping is None or not alternative.selectors:
            return None
        # Only the first selector counts: when it fails on a device, the others are not evaluated.
        return self._grouping.compile_expression(alternative.selectors[0][1]).driver

    def _extend(self, known: Suitability, alternative: RequestAlternative) -> None:
        """Evaluate the next batch of devices; without groups each device on its own."""
        start = known.evaluated
        stop = known.evaluated = (
            start + 1 if self._grouping is None else min(start + BATCH_SIZE, len(self.profiles))
        )
        alive = ((1 << stop) - (1 << start)) & ~self._hidden
        for _owner, expression in alternative.selectors:
            alive, broken = self._select(expression, alive, stop)
            if broken and RefusalReason.BROKEN_SELECTOR in FATAL_REASONS:
                known.faulty |= broken
            if not alive:
                return
        asking = alive if alternative.amounts else alive & ~self._unrestricted
        if asking:
            alive = self._filter_by_capacity(known, alternative, alive, asking)
        known.matching |= alive
        alive &= ~self._excluded
        if alive & self._tainted:
            alive = self._filter_by_taints(alternative, alive)
        known.mask |= alive

    def _filter_by_capacity(
        self, known: Suitability, alternative: RequestAlternative, alive: int, restricted: int
    ) -> int:
        """Remove the devices that can never give the requested amounts."""
        amounts = alternative.amounts
        for place in iter_bits(restricted):
            profile = self.profiles[place]
            totals = profile.totals
            if profile.accepts_any_amount and all(nanos <= totals.get(name, -1) for name, nanos in amounts):
                continue
            consumed = profile.compute_consumption(amounts)
            if isinstance(consumed, Refusal):
                alive &= ~(1 << place)
                if consumed.reason in FATAL_REASONS:
                    known.faulty |= 1 << place
        return alive

    def _filter_by_taints(self, alternative: RequestAlternative, alive: int) -> int:
        """Remove the devices with a taint that the alternative does not tolerate."""
        for place in iter_bits(alive & self._tainted):
            if taints.check(self.profiles[place].taints, alternative.tolerations) is not None:
                alive &= ~(1 << place)
        return alive

    # --- selectors ---

    def _select(self, expression: str, alive: int, stop: int) -> tuple[int, int]:
        """Masks of the devices for which a selector is true, and of those on which it fails."""
        plain = alive & self._plain
        if self._grouping is None or not plain:
            return self._select_each(expression, alive)
        reading = self._grouping.compile_expression(expression)
        if reading.driver is not None and reading.driver != self.driver:
            selected = broken = 0
        elif reading.driver_alone:
            selected, broken = plain, 0
        elif reading.reads is None:
            return self._select_each(expression, alive)
        else:
            selected, broken = self._select_groups(expression, reading, plain, stop)
        if plain == alive:
            return selected, broken
        more, worse = self._select_each(expression, alive & ~plain)
        return selected | more, broken | worse

    def _select_groups(
        self, expression: str, selector: GroupableSelector, alive: int, stop: int
    ) -> tuple[int, int]:
        """The same for plain devices; the result for the first of a group holds for all."""
        reads, text, verdicts, driver = selector.reads, selector.text, self._group_results, self.driver
        selected = broken = 0
        for key, members in self._group_devices(reads, stop).items() if reads else (((), alive),):
            members &= alive
            if not members:
                continue
            if text is not None and type(key) is str:
                if key == text:
                    selected |= members
                continue
            sought = (expression, driver, key)
            result = verdicts.get(sought)
            if result is None:
                first = self.profiles[(members & -members).bit_length() - 1]
                result = GROUP_RESULTS.put(verdicts, sought, selector.evaluate(driver, first.device))
            if result is True:
                selected |= members
            elif result is not False:
                broken |= members
        return selected, broken

    def _group_devices(self, reads: DeviceReads, stop: int) -> dict[Any, int]:
        found = self._groups.get(reads)
        if found is None:
            found = DEVICE_GROUPS.put(self._groups, reads, DeviceGroups())
        if found.size < stop:
            found.extend(self.driver, reads, self.profiles[found.size : stop], self._plain)
        return found.masks

    def _select_each(self, expression: str, alive: int) -> tuple[int, int]:
        """The same, for each device on its own."""
        selected = broken = 0
        for place in iter_bits(alive):
            result = self.profiles[place].evaluate(expression)
            if result is True:
                selected |= 1 << place
            elif result is not False:
                broken |= 1 << place
        return selected, broken


def filter_lists(lists: Sequence[OffsetList], alternative: RequestAlternative) -> Sequence[OffsetList]:
    """The lists whose driver an alternative does not rule out."""
    driver = lists[0][1].find_required_driver(alternative) if lists else None
    if driver is None:
        return lists
    return [placed for placed in lists if placed[1].driver == driver or not placed[1].all_plain]


def intern_device_list(
    profile_table: DeviceProfileTable, profiles: tuple[DeviceProfile, ...], multi_term: tuple[bool, ...]
) -> DeviceList:
    """The interned list of some devices."""
    key = (profiles, multi_term)
    found: DeviceList | None = profile_table.device_lists.get(key)
    if found is None:
        mask = sum(1 << place for place, is_tangled in enumerate(multi_term) if is_tangled)
        found = profile_table.device_lists[key] = DeviceList(
            profiles, mask, profile_table.grouping, profile_table.group_results
        )
    return found


# --- grouping keys ---


def _read_keys(driver: str, read: DeviceRead, profiles: Sequence[DeviceProfile]) -> list[Any]:
    """Keys for what an expression reads of devices: equal only when the values are the same."""
    field, domain, id = read
    if field == "allowMultipleAllocations":
        return [profile.shareable for profile in profiles]
    if not id:
        return [has_domain(driver, getattr(profile.device, field), domain) for profile in profiles]
    names = (id, f"{domain}/{id}") if domain == driver else (f"{domain}/{id}",)
    find = _read_attribute_keys if field == "attributes" else _read_capacity_keys
    return find(profiles, *names)


def _read_attribute_keys(
    profiles: Sequence[DeviceProfile], name: str, otherwise: str | None = None
) -> list[Any]:
    keys: list[Any] = []
    for profile in profiles:
        attributes = profile.device.attributes
        held = attributes.get(name)
        if held is None and otherwise is not None:
            held = attributes.get(otherwise)
        key: Any = held
        if held is not None:
            # All but strings and numbers are compared as published: in Python True equals 1.
            key = held.string_value
            if key is None:
                key = held.int_value
                if key is None:
                    key = held
        keys.append(key)
    return keys


def _read_capacity_keys(
    profiles: Sequence[DeviceProfile], name: str, otherwise: str | None = None
) -> list[Any]:
    keys: list[Any] = []
    for profile in profiles:
        capacity = profile.device.capacity
        held = capacity.get(name)
        if held is None and otherwise is not None:
            held = capacity.get(otherwise)
        amount = held.value if held is not None else None
        keys.append(None if amount is None else (amount.nanos, amount.form))
    return keys
