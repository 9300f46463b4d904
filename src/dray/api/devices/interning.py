"""Interning of devices: slices that publish equal devices share them in memory.

Theory of operation: every decoded slice has its own structs and dicts for each device, and in a large cluster
most of them equal those of a hundred other nodes. `DeviceInterner` gives a slice the devices of an earlier
slice with the same encoding. Code that compares devices by identity first then finds equal ones at once.

Rules for this file: slices are never changed; a slice with shared devices is a new object. The cache is
bounded by the number of devices, because devices that differ from node to node are never shared.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from dray.api.json_text import write_json
from dray.api.resource import Device, ResourceSlice
from dray.values.cache_bounds import CacheBound

INTERNED_DEVICES = CacheBound("interned devices of slices", 4_096, "a reflector of slices")

Devices = tuple[Device, ...]


class DeviceInterner:
    """Caches the devices of the last slices."""

    __slots__ = ("_count", "_known")

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Devices, bytes]] = OrderedDict()
        """By the encoding of the last device: all devices, and the encoding of all once it was needed."""
        self._count = 0

    def intern_devices(self, published: ResourceSlice) -> ResourceSlice:
        """Return the slice, with the devices of an earlier one if they are equal."""
        devices = published.spec.devices
        if not devices or len(devices) > INTERNED_DEVICES.max_entries:
            return published
        # Where devices differ from node to node the last one shows it, and the others need not be compared.
        key = write_json((len(devices), devices[-1]))
        known = self._known.get(key)
        if known is None:
            self._remember(key, devices)
            return published
        self._known.move_to_end(key)
        shared, text = known[0], known[1] or write_json(known[0])
        written = text if shared is devices else write_json(devices)
        # What was seen last is more likely to be seen again.
        self._known[key] = (shared, text) if written == text else (devices, written)
        if written != text or shared is devices:
            return published
        return replace(published, spec=replace(published.spec, devices=shared))

    def _remember(self, key: bytes, devices: Devices) -> None:
        self._known[key] = (devices, b"")
        self._count += len(devices)
        while self._count > INTERNED_DEVICES.max_entries:
            self._count -= len(self._known.popitem(last=False)[1][0])
