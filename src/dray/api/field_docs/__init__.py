"""Documentation of every field: the texts of `kubectl explain` and of the reference pages.

Fields are described once, by the struct that holds them. The package contains no rules; their exact wording
is in `validation`. The OpenAPI documents and the reference pages import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from dray.api.field_docs.claims import CLAIMS
from dray.api.field_docs.classic_and_core import CLASSIC, CORE
from dray.api.field_docs.shared import DEFAULT_DOCS, SHARED
from dray.api.field_docs.slices import SLICES
from dray.api.field_docs.transactions import TRANSACTIONS
from dray.api.field_docs.webhooks import WEBHOOKS
from dray.api.resource import Device, DeviceRequest, ExactDeviceRequest

__all__ = ["FIELD_DOCS", "get_field_docs", "get_struct_doc"]

FIELD_DOCS: Mapping[type, Mapping[str, str]] = MappingProxyType(
    {**SHARED, **CLAIMS, **SLICES, **CLASSIC, **CORE, **WEBHOOKS, **TRANSACTIONS}
)
"""Every struct, with the documentation of its fields."""

_OLD_VERSION_SUFFIX = "V1beta1"
_BY_NAME = {struct_type.__name__: struct_type for struct_type in FIELD_DOCS}
_MOVED_FIELDS: Mapping[str, tuple[type, ...]] = {
    f"DeviceRequest{_OLD_VERSION_SUFFIX}": (ExactDeviceRequest, DeviceRequest),
    f"BasicDevice{_OLD_VERSION_SUFFIX}": (Device,),
}
"""Structs of older versions that have the fields of other structs."""


def _find_origins(struct_type: type) -> tuple[type, ...]:
    """Return the structs that document the fields of a struct: itself, or those it is an older form of."""
    name = struct_type.__name__
    if name in _MOVED_FIELDS:
        return _MOVED_FIELDS[name]
    return (
        _BY_NAME.get(name.removesuffix(_OLD_VERSION_SUFFIX), struct_type)
        if name.endswith(_OLD_VERSION_SUFFIX)
        else struct_type,
    )


@lru_cache(maxsize=512)
def get_field_docs(struct_type: type) -> Mapping[str, str]:
    """Return the documentation of a struct's fields, by their names on the wire."""
    found = dict(DEFAULT_DOCS)
    for origin in _find_origins(struct_type):
        found |= FIELD_DOCS.get(origin, {})
    if struct_type.__name__ == f"Device{_OLD_VERSION_SUFFIX}":
        found["basic"] = "Everything about the device but its name."
    return found


def get_struct_doc(struct_type: type) -> str:
    """Return the documentation of a struct, a sentence or two."""
    return " ".join((_find_origins(struct_type)[0].__doc__ or "").partition("\n\n")[0].split())
