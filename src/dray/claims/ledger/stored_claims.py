"""Stored claims as the ledger reads them: names and allocations, straight from stored bytes.

The audit reads every claim of a cluster, so only the few fields that count are decoded.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.claims.ledger.rows import Holder
from dray.values.quantity import Quantity


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs read from claims; other fields are ignored."""


class StoredResult(_Seen, frozen=True):
    """One result of an allocation."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class _Devices(_Seen, frozen=True):
    results: tuple[StoredResult, ...] = ()


class _Allocation(_Seen, frozen=True):
    devices: _Devices = _Devices()


class _Status(_Seen, frozen=True):
    allocation: _Allocation | None = None


class _Metadata(_Seen, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class StoredClaim(_Seen, frozen=True):
    """A claim as the ledger reads it."""

    metadata: _Metadata = _Metadata()
    status: _Status = _Status()

    @property
    def holder(self) -> Holder:
        return Holder(namespace=self.metadata.namespace, name=self.metadata.name, uid=self.metadata.uid)

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None

    @property
    def results(self) -> tuple[StoredResult, ...]:
        """What the allocation holds; nothing when there is none."""
        return () if self.status.allocation is None else self.status.allocation.devices.results


def _read_quantity(wanted: type, value: Any) -> Any:
    return Quantity.from_json_value(value)


_CLAIM = msgspec.json.Decoder(StoredClaim, dec_hook=_read_quantity)


def read_claim(value: bytes) -> StoredClaim:
    """A claim from its stored bytes."""
    return _CLAIM.decode(value)


def may_be_allocated(value: bytes) -> bool:
    """Whether a claim may have an allocation: its bytes contain the name of the field."""
    return b'"allocation"' in value
