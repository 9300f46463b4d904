"""The devices of a pool in order, without their names, and which of them suit a want.

Theory of operation: a selector mostly reads the driver and one or two attributes, and the devices of a pool
have few distinct values of them. So devices are grouped by what a selector reads, and it is evaluated once
per group; one that demands another driver is not evaluated at all. Whether a device suits a want does not
depend on what is in use, so it is kept here, where it outlives every change of usage; nodes whose pools hold
the same devices share one list.

Devices are judged in stretches: who finds the first of a thousand devices suitable should not pay for the
others. What a stretch finds out ahead of the search stays unseen until the search comes there.

Rules for this file: every answer is that of `Content.verdict`; grouping changes how often it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dray.allocator.checks import taints
from dray.allocator.inventory.device_profiles import Content, Contents, GroupVerdicts, Reading, ReadingJudge
from dray.allocator.refusals import Reason, Refusal
from dray.allocator.requests import Want
from dray.api.devices.device_value import DeviceRead, DeviceReads, has_domain
from dray.values.cache_bounds import Bound

WANTS = Bound("devices that suit wants", 128, "a list of devices")
GROUPS = Bound("devices by what selectors read", 64, "a list of devices")
VERDICTS = Bound("selector results on groups of devices", 8_192, "all device contents of a stock")

FAULTS = frozenset({Reason.BROKEN_SELECTOR, Reason.CAPACITY_UNREPRESENTABLE})
"""Reasons that end a search when it reaches them: the device cannot be judged."""

STRETCH = 24
"""Devices judged at once; the whole of most pools."""


class Groups:
    """The plain devices of a list by what an expression reads of them, as far as anybody looked."""

    __slots__ = ("masks", "reach")

    def __init__(self) -> None:
        self.reach = 0
        self.masks: dict[Any, int] = {}

    def extend(self, driver: str, reads: DeviceReads, stretch: Sequence[Content], plain: int) -> None:
        """Sort the next devices into groups."""
        masks = self.masks
        bit = 1 << self.reach
        self.reach += len(stretch)
        columns = [_keys(driver, read, stretch) for read in reads]
        for key in columns[0] if len(columns) == 1 else zip(*columns, strict=True):
            if bit & plain:
                masks[key] = masks.get(key, 0) | bit
            bit <<= 1


class Suitability:
    """Which devices of a list suit a want, as far as anybody looked.

    `mask` has those that suit, `suiting` also those that match but may not be taken, `faulty` those that
    cannot be judged.
    """

    __slots__ = ("faulty", "mask", "reach", "suiting")

    def __init__(self) -> None:
        self.reach = self.mask = self.suiting = self.faulty = 0


PlacedList = tuple[int, "DeviceList"]
"""A list, and the number of its first candidate."""


class DeviceList:
    """What a node can use of a pool: contents in order, and what was found out about them."""

    __slots__ = (
        "__weakref__",
        "_barred",
        "_free",
        "_groups",
        "_hidden",
        "_judge",
        "_plain",
        "_suitable",
        "_tainted",
        "_verdicts",
        "all_plain",
        "contents",
        "driver",
    )

    def __init__(
        self, contents: tuple[Content, ...], tangled: int, judge: ReadingJudge | None, verdicts: GroupVerdicts
    ) -> None:
        self.contents = contents
        self.driver = contents[0].driver if contents else ""
        self._barred = tangled
        self._hidden = self._tainted = 0
        self._free = self._plain = (1 << len(contents)) - 1
        self._note_oddities()
        self.all_plain = self._plain.bit_count() == len(contents)
        self._judge = judge
        self._verdicts = verdicts
        self._groups: dict[DeviceReads, Groups] = {}
        self._suitable: dict[Any, Suitability] = {}

    def _note_oddities(self) -> None:
        """Find the devices that are not like most: in one go, as every node has such a list."""
        for place, content in enumerate(self.contents):
            if content.withheld is not None:
                self._barred |= 1 << place
                self._hidden |= (content.withheld is Reason.BINDING_CONDITIONS) << place
            if content.taints:
                self._tainted |= 1 << place
            if not content.gives_freely:
                self._free ^= 1 << place
            if not content.plain:
                self._plain ^= 1 << place

    def judged(self, want: Want, beyond: int) -> tuple[Suitability, int]:
        """Which devices suit a want, judged further than a place, and how many were judged for it now."""
        found = self._suitable.get(want.key)
        if found is None:
            found = WANTS.keep(self._suitable, want.key, Suitability())
        if found.reach > beyond:
            return found, 0
        self._extend(found, want)
        return found, found.reach - beyond

    def demanded_driver(self, want: Want) -> str | None:
        """The only driver whose plain devices can suit a want."""
        if self._judge is None or not want.selectors:
            return None
        # Only the first selector tells: it may fail on a device, and then those behind it are not asked.
        return self._judge.reading(want.selectors[0][1]).driver

    def _extend(self, known: Suitability, want: Want) -> None:
        """Judge the next stretch of devices; without groups every device is judged on its own."""
        start = known.reach
        stop = known.reach = start + 1 if self._judge is None else min(start + STRETCH, len(self.contents))
        alive = ((1 << stop) - (1 << start)) & ~self._hidden
        for _owner, expression in want.selectors:
            alive, broken = self._select(expression, alive, stop)
            if broken and Reason.BROKEN_SELECTOR in FAULTS:
                known.faulty |= broken
            if not alive:
                return
        asking = alive if want.amounts else alive & ~self._free
        if asking:
            alive = self._able(known, want, alive, asking)
        known.suiting |= alive
        alive &= ~self._barred
        if alive & self._tainted:
            alive = self._tolerated(want, alive)
        known.mask |= alive

    def _able(self, known: Suitability, want: Want, alive: int, asking: int) -> int:
        """Without the devices that can never give what is asked."""
        amounts = want.amounts
        for place in places(asking):
            content = self.contents[place]
            totals = content.totals
            if content.gives_freely and all(nanos <= totals.get(name, -1) for name, nanos in amounts):
                continue
            consumed = content.consumed(amounts)
            if isinstance(consumed, Refusal):
                alive &= ~(1 << place)
                if consumed.reason in FAULTS:
                    known.faulty |= 1 << place
        return alive

    def _tolerated(self, want: Want, alive: int) -> int:
        """Without the devices that have a taint the want does not tolerate."""
        for place in places(alive & self._tainted):
            if taints.refuse(self.contents[place].taints, want.tolerations) is not None:
                alive &= ~(1 << place)
        return alive

    # --- selectors ---

    def _select(self, expression: str, alive: int, stop: int) -> tuple[int, int]:
        """Of some devices those for which a selector is true, and those on which it fails."""
        plain = alive & self._plain
        if self._judge is None or not plain:
            return self._select_each(expression, alive)
        reading = self._judge.reading(expression)
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

    def _select_groups(self, expression: str, reading: Reading, alive: int, stop: int) -> tuple[int, int]:
        """The same, of plain devices; the verdict on the first of a group is that on all."""
        reads, text, verdicts, driver = reading.reads, reading.text, self._verdicts, self.driver
        selected = broken = 0
        for key, members in self._grouped(reads, stop).items() if reads else (((), alive),):
            members &= alive
            if not members:
                continue
            if text is not None and type(key) is str:
                if key == text:
                    selected |= members
                continue
            sought = (expression, driver, key)
            verdict = verdicts.get(sought)
            if verdict is None:
                first = self.contents[(members & -members).bit_length() - 1]
                verdict = VERDICTS.keep(verdicts, sought, reading.judge(driver, first.device))
            if verdict is True:
                selected |= members
            elif verdict is not False:
                broken |= members
        return selected, broken

    def _grouped(self, reads: DeviceReads, stop: int) -> dict[Any, int]:
        found = self._groups.get(reads)
        if found is None:
            found = GROUPS.keep(self._groups, reads, Groups())
        if found.reach < stop:
            found.extend(self.driver, reads, self.contents[found.reach : stop], self._plain)
        return found.masks

    def _select_each(self, expression: str, alive: int) -> tuple[int, int]:
        """The same, each device on its own."""
        selected = broken = 0
        for place in places(alive):
            verdict = self.contents[place].verdict(expression)
            if verdict is True:
                selected |= 1 << place
            elif verdict is not False:
                broken |= 1 << place
        return selected, broken


def suitable_lists(lists: Sequence[PlacedList], want: Want) -> Sequence[PlacedList]:
    """The lists that may have a device for a want, whose driver it does not rule out."""
    driver = lists[0][1].demanded_driver(want) if lists else None
    if driver is None:
        return lists
    return [placed for placed in lists if placed[1].driver == driver or not placed[1].all_plain]


def device_list(known: Contents, contents: tuple[Content, ...], tangled: tuple[bool, ...]) -> DeviceList:
    """The list of some devices; the same one for as long as anybody has it."""
    key = (contents, tangled)
    found: DeviceList | None = known.lists.get(key)
    if found is None:
        mask = sum(1 << place for place, is_tangled in enumerate(tangled) if is_tangled)
        found = known.lists[key] = DeviceList(contents, mask, known.reading, known.verdicts)
    return found


def places(mask: int) -> Iterator[int]:
    """The places in a mask, in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# --- what tells devices apart ---


def _keys(driver: str, read: DeviceRead, contents: Sequence[Content]) -> list[Any]:
    """What a read finds on devices, as something to compare by: equal only when the values are the same."""
    field, domain, id = read
    if field == "allowMultipleAllocations":
        return [content.shareable for content in contents]
    if not id:
        return [has_domain(driver, getattr(content.device, field), domain) for content in contents]
    names = (id, f"{domain}/{id}") if domain == driver else (f"{domain}/{id}",)
    find = _attribute_keys if field == "attributes" else _capacity_keys
    return find(contents, *names)


def _attribute_keys(contents: Sequence[Content], name: str, otherwise: str | None = None) -> list[Any]:
    keys: list[Any] = []
    for content in contents:
        attributes = content.device.attributes
        held = attributes.get(name)
        if held is None and otherwise is not None:
            held = attributes.get(otherwise)
        key: Any = held
        if held is not None:
            # All but texts and numbers are compared as they were published: Python takes True for 1.
            key = held.string_value
            if key is None:
                key = held.int_value
                if key is None:
                    key = held
        keys.append(key)
    return keys


def _capacity_keys(contents: Sequence[Content], name: str, otherwise: str | None = None) -> list[Any]:
    keys: list[Any] = []
    for content in contents:
        capacity = content.device.capacity
        held = capacity.get(name)
        if held is None and otherwise is not None:
            held = capacity.get(otherwise)
        amount = held.value if held is not None else None
        keys.append(None if amount is None else (amount.nanos, amount.form))
    return keys
