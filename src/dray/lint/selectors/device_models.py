"""The published devices as selectors see them: few different ones, however many there are.

Theory of operation: thousands of devices differ in a serial number that no selector mentions. So a device is
cut down to what some selector looks at (its *needs*), and devices that are then alike become one *model* with
a count and the name of the first. A single selector looks at even less: `view` gives the models that are left
when only its own needs count. What is published at all, under which domains and names, is noted on the way.

Rules for this file: no expression is evaluated, and no more than `MOST` models are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from dray.api.codec import decode
from dray.api.devices.device_cel import DeviceBinding, prepare
from dray.api.json_text import write_json
from dray.api.resource import Device
from dray.lint.object_facts import Page
from dray.lint.selectors.analysis import ATTRIBUTES, CAPACITY, LIST, Need

MOST: Final = 10_000
"""Different devices that are kept; more of them are counted and not looked at."""

Needs = frozenset[Need]


class Model:
    """Devices that cannot be told apart: what they have, how many there are, and one to name."""

    def __init__(self, driver: str, device: Device, pool: str, count: int = 0) -> None:
        self.driver = driver
        self.device = device
        self.pool = pool
        self.count = count

    @cached_property
    def binding(self) -> DeviceBinding:
        """The device as expressions see it."""
        return prepare(self.driver, self.device)

    @property
    def called(self) -> str:
        """The device to name, for people."""
        return f"`{self.device.name}` of pool `{self.driver}/{self.pool}`"

    def type_of(self, domain: str, name: str) -> str | None:
        """The type of an attribute, or nothing when the device lacks it."""
        for key in self._keys(domain, name):
            held = self.device.attributes[key].held() if key in self.device.attributes else None
            if held is not None:
                return LIST if self.device.attributes[key].is_list else held[0]
        return None

    def shown(self, need: Need) -> str:
        """What the device has there, as people write it; nothing when it has nothing."""
        kind, domain, name = need
        for key in self._keys(domain, name):
            if kind == CAPACITY:
                amount = self.device.capacity[key].value if key in self.device.capacity else None
                if amount is not None:
                    return str(amount)
            held = self.device.attributes[key].held() if key in self.device.attributes else None
            if held is not None and kind == ATTRIBUTES:
                values = [str(value).lower() if value in (True, False) else str(value) for value in held[1]]
                return f"[{', '.join(values)}]" if self.device.attributes[key].is_list else values[0]
        return ""

    def has(self, need: Need) -> bool:
        """Whether the device has an attribute or capacity."""
        kind, domain, name = need
        held = self.device.capacity if kind == CAPACITY else self.device.attributes
        return any(key in held for key in self._keys(domain, name))

    def _keys(self, domain: str, name: str) -> tuple[str, ...]:
        full = f"{domain}/{name}"
        return (full, name) if domain == self.driver else (full,)


class Catalogue:
    """Every published device, by what some selector can see of it."""

    def __init__(self, pages: Iterable[Page], needs: Needs) -> None:
        self.drivers: set[str] = set()
        """Those that publish devices."""
        self.names: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Kind and domain: the names that are published there."""
        self.total = 0
        self.whole = True
        """Whether all different devices are kept."""
        self._kept: dict[tuple[str, bytes], Model] = {}
        self._views: dict[Needs, tuple[Model, ...]] = {}
        for page in pages:
            self._take(page, needs)

    def _take(self, page: Page, needs: Needs) -> None:
        for device in decode(page.contents).object.spec.devices:
            self.total += 1
            self.drivers.add(page.driver)
            for kind, held in ((ATTRIBUTES, device.attributes), (CAPACITY, device.capacity)):
                for key in held:
                    domain, name = _parts(page.driver, key)
                    self.names[kind, domain].add(name)
            model = Model(page.driver, _trimmed(page.driver, device, needs), page.pool, 1)
            self.whole = _counted(self._kept, model) and self.whole

    def __len__(self) -> int:
        return len(self._kept)

    def view(self, needs: Needs) -> tuple[Model, ...]:
        """The models that remain when only these needs count."""
        found = self._views.get(needs)
        if found is None:
            alike: dict[tuple[str, bytes], Model] = {}
            for model in self._kept.values():
                device = _trimmed(model.driver, model.device, needs)
                _counted(alike, Model(model.driver, device, model.pool, model.count))
            found = self._views[needs] = tuple(alike.values())
        return found

    def has_view(self, needs: Needs) -> bool:
        """Whether a view is there already and costs nothing."""
        return needs in self._views

    def domains(self) -> set[str]:
        """Everything that could be meant by the domain of an attribute or capacity."""
        return self.drivers | {domain for _, domain in self.names}


def _counted(kept: dict[tuple[str, bytes], Model], model: Model) -> bool:
    """Add a model to those that are alike; not when that would be one too many."""
    key = (model.driver, write_json(msgspec.structs.replace(model.device, name="")))
    known = kept.get(key)
    if known is not None:
        known.count += model.count
    elif len(kept) < MOST:
        kept[key] = model
    else:
        return False
    return True


def _trimmed(driver: str, device: Device, needs: Needs) -> Device:
    """A device with nothing but what is needed."""
    return msgspec.structs.replace(
        device,
        attributes={k: v for k, v in device.attributes.items() if _needed(ATTRIBUTES, driver, k, needs)},
        capacity={k: v for k, v in device.capacity.items() if _needed(CAPACITY, driver, k, needs)},
    )


def _needed(kind: str, driver: str, key: str, needs: Needs) -> bool:
    domain, name = _parts(driver, key)
    return (kind, domain, name) in needs or (kind, domain, "") in needs or (kind, "", "") in needs


def _parts(driver: str, key: str) -> tuple[str, str]:
    domain, slash, name = key.partition("/")
    return (domain, name) if slash else (driver, key)
