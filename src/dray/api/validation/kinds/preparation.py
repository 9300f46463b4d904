"""Rules of a preparation: it names a node and a claim, which never change, and perhaps what the node has."""

from __future__ import annotations

from msgspec.structs import replace

from dray.api.fields import ROOT, Path, invalid, required
from dray.api.preparation import DeviceInHand, Preparation
from dray.api.validation import limits
from dray.api.validation.field_rules import IMMUTABLE, Errors, each

_SPEC = ROOT.field("spec")
_CLAIM = _SPEC.field("claim")
_DEVICES = _SPEC.field("devices")


def preparation(obj: Preparation) -> Errors:
    """What holds of a new preparation besides its metadata."""
    if not obj.spec.node_name:
        yield required(_SPEC.field("nodeName"), "the node that has the devices")
    for name in ("namespace", "name", "uid"):
        if not getattr(obj.spec.claim, name):
            yield required(_CLAIM.field(name), "the claim whose devices the node has")
    yield from _devices(obj)


def _devices(obj: Preparation) -> Errors:
    return each(obj.spec.devices, limits.RESULTS_PER_ALLOCATION, _device, _DEVICES)


def _device(device: DeviceInHand, path: Path) -> Errors:
    for name in ("driver", "pool", "device"):
        if not getattr(device, name):
            yield required(path.field(name), "a device has a driver, a pool and a name")


def preparation_update(new: Preparation, old: Preparation) -> Errors:
    """A node that takes another claim writes another preparation; what it has it may say anew."""
    said = new.spec.devices
    if replace(old.spec, devices=said) != new.spec or (old.spec.devices and not said):
        yield invalid(_SPEC, new.spec, IMMUTABLE)
    if said != old.spec.devices:
        yield from _devices(new)
