"""Validation of preparations: node and claim are required and immutable, devices are optional."""

from __future__ import annotations

from msgspec.structs import replace

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, invalid, required
from dray.api.preparation import Preparation, PreparationDevice
from dray.api.validation.field_rules import IMMUTABLE, FieldErrors, validate_each

_SPEC = ROOT.child("spec")
_CLAIM = _SPEC.child("claim")
_DEVICES = _SPEC.child("devices")


def validate_preparation(obj: Preparation) -> FieldErrors:
    """Check a new preparation, its metadata excluded."""
    if not obj.spec.node_name:
        yield required(_SPEC.child("nodeName"), "the node that has the devices")
    for name in ("namespace", "name", "uid"):
        if not getattr(obj.spec.claim, name):
            yield required(_CLAIM.child(name), "the claim whose devices the node has")
    yield from _validate_devices(obj)


def _validate_devices(obj: Preparation) -> FieldErrors:
    return validate_each(obj.spec.devices, limits.RESULTS_PER_ALLOCATION, _validate_device, _DEVICES)


def _validate_device(device: PreparationDevice, path: FieldPath) -> FieldErrors:
    for name in ("driver", "pool", "device"):
        if not getattr(device, name):
            yield required(path.child(name), "a device has a driver, a pool and a name")


def validate_preparation_update(new: Preparation, old: Preparation) -> FieldErrors:
    """Check that node and claim do not change; the devices may."""
    devices = new.spec.devices
    if replace(old.spec, devices=devices) != new.spec or (old.spec.devices and not devices):
        yield invalid(_SPEC, new.spec, IMMUTABLE)
    if devices != old.spec.devices:
        yield from _validate_devices(new)
