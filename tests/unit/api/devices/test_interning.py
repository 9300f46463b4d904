"""Slices that publish equal devices share them; nothing else changes."""

from __future__ import annotations

from msgspec.structs import replace

from dray.api.codec import decode
from dray.api.devices import interning
from dray.api.devices.interning import DeviceInterner
from dray.api.json_text import write_json
from dray.api.resource import ResourceSlice


def slice_of(name: str, *amounts: str) -> ResourceSlice:
    devices = [{"name": f"d{i}", "capacity": {"memory": {"value": each}}} for i, each in enumerate(amounts)]
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": "d", "nodeName": name, "pool": {"name": name}, "devices": devices},
    }
    found: ResourceSlice = decode(write_json(document)).object
    return found


def test_equal_devices_are_shared_and_the_slice_stays_equal():
    sharing = DeviceInterner()
    first, second = slice_of("a", "1Gi", "2Gi"), slice_of("b", "1Gi", "2Gi")
    assert sharing.intern_devices(first) is first
    kept = sharing.intern_devices(second)
    assert kept == second
    assert kept.spec.devices is first.spec.devices
    assert second.spec.devices is not first.spec.devices
    assert sharing.intern_devices(kept) is kept


def test_devices_that_are_written_another_way_are_not_shared():
    """An amount keeps the form in which it was published."""
    sharing = DeviceInterner()
    assert slice_of("a", "1Gi").spec.devices == slice_of("a", "1073741824").spec.devices
    for amount in ("1Gi", "1073741824", "2Gi"):
        published = slice_of("n", amount)
        assert sharing.intern_devices(published) is published


def test_the_interned_devices_are_bounded(monkeypatch):
    monkeypatch.setattr(interning.INTERNED_DEVICES, "max_entries", 4)
    sharing = DeviceInterner()
    often = slice_of("often", "1")
    sharing.intern_devices(often)
    for number in range(20):
        sharing.intern_devices(slice_of(f"n{number}", f"{number}Mi", "7"))
        assert sum(len(devices) for devices, _ in sharing._known.values()) == sharing._count <= 4
        assert sharing.intern_devices(slice_of("again", "1")).spec.devices is often.spec.devices
    large = slice_of("large", *["1"] * 5)
    assert sharing.intern_devices(large) is large
    nothing = replace(large, spec=replace(large.spec, devices=()))
    assert sharing.intern_devices(nothing) is nothing
