"""What every field is for, in our own words: the text behind `kubectl explain` and the reference pages.

Fields are described once, by the struct that holds them; what a rule demands exactly stands with the rules,
not here. Whoever prints descriptions may import this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from dray.api.field_docs.claims import CLAIMS
from dray.api.field_docs.classic_and_core import CLASSIC, CORE
from dray.api.field_docs.shared import EVERYWHERE, SHARED
from dray.api.field_docs.slices import SLICES
from dray.api.field_docs.webhooks import WEBHOOKS
from dray.api.resource import Device, DeviceRequest, ExactDeviceRequest

__all__ = ["WORDS", "about", "words_of"]

WORDS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {**SHARED, **CLAIMS, **SLICES, **CLASSIC, **CORE, **WEBHOOKS}
)
"""Every struct, and what its fields are for."""

_OLDER = "V1beta1"
_BY_NAME = {shape.__name__: shape for shape in WORDS}
_MOVED: Mapping[str, tuple[type, ...]] = {
    f"DeviceRequest{_OLDER}": (ExactDeviceRequest, DeviceRequest),
    f"BasicDevice{_OLDER}": (Device,),
}
"""Structs of older versions that hold fields of others."""


def _origins(shape: type) -> tuple[type, ...]:
    """The structs a struct has its fields from: itself, unless it is an older form of others."""
    name = shape.__name__
    if name in _MOVED:
        return _MOVED[name]
    return (_BY_NAME.get(name.removesuffix(_OLDER), shape) if name.endswith(_OLDER) else shape,)


@lru_cache(maxsize=512)
def words_of(shape: type) -> Mapping[str, str]:
    """What the fields of a struct are for, by their names on the wire."""
    found = dict(EVERYWHERE)
    for origin in _origins(shape):
        found |= WORDS.get(origin, {})
    if shape.__name__ == f"Device{_OLDER}":
        found["basic"] = "Everything about the device but its name."
    return found


def about(shape: type) -> str:
    """What a struct is, in a sentence or two."""
    return " ".join((_origins(shape)[0].__doc__ or "").partition("\n\n")[0].split())
