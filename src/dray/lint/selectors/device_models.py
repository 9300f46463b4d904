"""Device models: the published devices, merged where selectors cannot distinguish them.

Theory of operation: thousands of devices differ in a serial number that no selector mentions. A device is
trimmed to the fields that some selector reads, and devices that are then equal become one *model* with a
count and the name of the first. A single selector reads even less: `get_view` returns the models that remain
when only its own fields count. The index also records which names are published under which domains.

Rules for this file: no expression is evaluated, and at most `MAX_MODELS` models are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import msgspec

from dray.api.codec import decode
from dray.api.devices.device_cel import DeviceBinding, bind_device
from dray.api.devices.device_fields import find_attribute, find_capacity, has_field
from dray.api.devices.selector_analysis import LIST
from dray.api.devices.selector_references import ATTRIBUTES, CAPACITY, FieldKey
from dray.api.json_text import write_json
from dray.api.resource import Device
from dray.lint.object_facts import SliceFacts

MAX_MODELS: Final = 10_000
"""Different devices that are kept; more of them are counted and not evaluated."""

FieldKeys = frozenset[FieldKey]


class DeviceModel:
    """Devices that selectors cannot distinguish: one device as the example, and their number."""

    def __init__(self, driver: str, device: Device, pool: str, count: int = 0) -> None:
        self.driver = driver
        self.device = device
        self.pool = pool
        self.count = count

    @cached_property
    def binding(self) -> DeviceBinding:
        """The device as expressions see it."""
        return bind_device(self.driver, self.device)

    @property
    def description(self) -> str:
        """The example device, for messages."""
        return f"`{self.device.name}` of pool `{self.driver}/{self.pool}`"

    def get_attribute_type(self, domain: str, name: str) -> str | None:
        """The type of an attribute; None when the device lacks it."""
        attribute = find_attribute(self.driver, self.device, (ATTRIBUTES, domain, name))
        typed = None if attribute is None else attribute.get_typed_values()
        if attribute is None or typed is None:
            return None
        return LIST if attribute.is_list else typed[0]

    def format_value(self, field_key: FieldKey) -> str:
        """The value of an attribute or capacity as text; empty when the device lacks it."""
        if field_key[0] == CAPACITY:
            capacity = find_capacity(self.driver, self.device, field_key)
            return "" if capacity is None else str(capacity.value)
        attribute = find_attribute(self.driver, self.device, field_key)
        typed = None if attribute is None else attribute.get_typed_values()
        if attribute is None or typed is None:
            return ""
        values = [str(value).lower() if value in (True, False) else str(value) for value in typed[1]]
        return f"[{', '.join(values)}]" if attribute.is_list else values[0]

    def has_field(self, field_key: FieldKey) -> bool:
        """Whether the device has an attribute or capacity."""
        return has_field(self.driver, self.device, field_key)


class DeviceModelIndex:
    """The models of all published devices."""

    def __init__(self, slices: Iterable[SliceFacts], field_keys: FieldKeys) -> None:
        self.drivers: set[str] = set()
        """The drivers that publish devices."""
        self.names_by_domain: dict[tuple[str, str], set[str]] = defaultdict(set)
        """The published names by kind and domain."""
        self.device_count = 0
        self.is_complete = True
        """Whether all different devices are kept."""
        self._models: dict[tuple[str, bytes], DeviceModel] = {}
        self._views: dict[FieldKeys, tuple[DeviceModel, ...]] = {}
        for slice_facts in slices:
            self._add_slice(slice_facts, field_keys)

    def _add_slice(self, slice_facts: SliceFacts, field_keys: FieldKeys) -> None:
        for device in decode(slice_facts.contents).object.spec.devices:
            self.device_count += 1
            self.drivers.add(slice_facts.driver)
            for kind, held in ((ATTRIBUTES, device.attributes), (CAPACITY, device.capacity)):
                for key in held:
                    domain, name = _split_key(slice_facts.driver, key)
                    self.names_by_domain[kind, domain].add(name)
            model = DeviceModel(
                slice_facts.driver, _trim_device(slice_facts.driver, device, field_keys), slice_facts.pool, 1
            )
            self.is_complete = _merge_model(self._models, model) and self.is_complete

    def __len__(self) -> int:
        return len(self._models)

    def get_view(self, field_keys: FieldKeys) -> tuple[DeviceModel, ...]:
        """The models that remain when only these fields count."""
        found = self._views.get(field_keys)
        if found is None:
            alike: dict[tuple[str, bytes], DeviceModel] = {}
            for model in self._models.values():
                device = _trim_device(model.driver, model.device, field_keys)
                _merge_model(alike, DeviceModel(model.driver, device, model.pool, model.count))
            found = self._views[field_keys] = tuple(alike.values())
        return found

    def has_cached_models(self, field_keys: FieldKeys) -> bool:
        """Whether a view is cached."""
        return field_keys in self._views

    def list_domains(self) -> set[str]:
        """All domains of attributes and capacities."""
        return self.drivers | {domain for _, domain in self.names_by_domain}


def _merge_model(models: dict[tuple[str, bytes], DeviceModel], model: DeviceModel) -> bool:
    """Add a model to the equal ones; False when that exceeds the limit."""
    key = (model.driver, write_json(msgspec.structs.replace(model.device, name="")))
    known = models.get(key)
    if known is not None:
        known.count += model.count
    elif len(models) < MAX_MODELS:
        models[key] = model
    else:
        return False
    return True


def _trim_device(driver: str, device: Device, field_keys: FieldKeys) -> Device:
    """A device with only the needed fields."""
    return msgspec.structs.replace(
        device,
        attributes={
            k: v for k, v in device.attributes.items() if _is_needed(ATTRIBUTES, driver, k, field_keys)
        },
        capacity={k: v for k, v in device.capacity.items() if _is_needed(CAPACITY, driver, k, field_keys)},
    )


def _is_needed(kind: str, driver: str, key: str, field_keys: FieldKeys) -> bool:
    domain, name = _split_key(driver, key)
    return (
        (kind, domain, name) in field_keys or (kind, domain, "") in field_keys or (kind, "", "") in field_keys
    )


def _split_key(driver: str, key: str) -> tuple[str, str]:
    domain, slash, name = key.partition("/")
    return (domain, name) if slash else (driver, key)
