"""Rows of the ledger: holders of devices, charges to counters, and what nodes have prepared.

Theory of operation: a device has a row while a claim holds it. A *holding* is the whole device or a share of
it, and records the preparations that cover it. When its claim is released while a node still has it prepared,
the holding stays behind as *gone*: that is the quarantine. What the device draws from counters is written
into its row when it is first taken, so that exactly this is credited later, whatever the driver publishes by
then. A counter set has a row with the sums charged to it; a preparation has one with what it covers, because
the claim may be gone when the preparation is deleted.

Only this module encodes and decodes keys and rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from dray.api.json_text import write_json
from dray.errors import DecodeError
from dray.values.quantity import Quantity

LEDGER_PREFIX = b"/ledger/"
DEVICE_PREFIX = LEDGER_PREFIX + b"devices/"
COUNTER_PREFIX = LEDGER_PREFIX + b"counters/"
PREPARATION_PREFIX = LEDGER_PREFIX + b"preparations/"

ROW_FORMAT = 1
"""The format of rows; a row of a later format is not read."""


class DeviceId(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class CounterSetId(NamedTuple):
    """A counter set in the cluster."""

    driver: str
    pool: str
    counter_set: str

    def __str__(self) -> str:
        return "/".join(self)


class LedgerRow(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of rows and their parts."""


class Holder(LedgerRow, frozen=True):
    """A claim, identified by its uid; the names are for messages."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Holding(LedgerRow, frozen=True):
    """What a claim has of a device: the whole when there are no amounts, else a share."""

    holder: Holder
    share: str | None = None
    amounts: dict[str, Quantity] | None = None
    prepared: dict[str, str] = {}
    """Preparations that cover it, each with its node."""
    gone: bool = False
    """The claim was released while a node had it prepared: quarantine."""

    @property
    def is_whole(self) -> bool:
        return self.amounts is None

    @property
    def identity(self) -> tuple[str, str]:
        """The identity of a holding within one device."""
        return self.holder.uid, self.share or ""


class DeviceRow(LedgerRow, frozen=True):
    """The holdings of a device, and what it drew from which counters when it was taken."""

    format: int = msgspec.field(default_factory=lambda: ROW_FORMAT)
    holdings: tuple[Holding, ...] = ()
    charged: dict[str, dict[str, Quantity]] = {}

    @property
    def normalized(self) -> DeviceRow:
        """The same row, its holdings in an order that does not depend on history."""
        ordered = tuple(sorted(self.holdings, key=lambda holding: (holding.gone, holding.identity)))
        return msgspec.structs.replace(self, holdings=ordered)


class CounterRow(LedgerRow, frozen=True):
    """What all devices that are taken draw from a counter set."""

    format: int = msgspec.field(default_factory=lambda: ROW_FORMAT)
    charged: dict[str, Quantity] = {}


class CoveredDevice(LedgerRow, frozen=True):
    """One device, or one share, that a preparation covers."""

    driver: str
    pool: str
    device: str
    share: str | None = None
    amounts: dict[str, Quantity] | None = None

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)


class PreparationRow(LedgerRow, frozen=True):
    """What a preparation of a node covers."""

    format: int = msgspec.field(default_factory=lambda: ROW_FORMAT)
    node: str = ""
    holder: Holder = Holder()
    covered: tuple[CoveredDevice, ...] = ()


AnyRow = DeviceRow | CounterRow | PreparationRow


def _escape(part: str) -> str:
    """Escape a part of a key: names of pools contain slashes, which separate the parts of keys."""
    return part.replace("%", "%25").replace("/", "%2F") if "/" in part or "%" in part else part


def _unescape(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")


@lru_cache(maxsize=8_192)
def build_device_key(device: DeviceId) -> bytes:
    """The key of the row of a device."""
    return DEVICE_PREFIX + "/".join(map(_escape, device)).encode()


@lru_cache(maxsize=16_384)
def build_counter_key(counter_set: CounterSetId) -> bytes:
    """The key of the row of a counter set."""
    return COUNTER_PREFIX + "/".join(map(_escape, counter_set)).encode()


def build_preparation_key(name: str) -> bytes:
    """The key of the row of a preparation."""
    return PREPARATION_PREFIX + _escape(name).encode()


def parse_device_key(key: bytes) -> DeviceId:
    """The device whose row has this key."""
    driver, pool, device = map(_unescape, key[len(DEVICE_PREFIX) :].decode().split("/"))
    return DeviceId(driver, pool, device)


def parse_counter_key(key: bytes) -> CounterSetId:
    """The counter set whose row has this key."""
    driver, pool, counter_set = map(_unescape, key[len(COUNTER_PREFIX) :].decode().split("/"))
    return CounterSetId(driver, pool, counter_set)


def parse_preparation_key(key: bytes) -> str:
    """The name of the preparation whose row has this key."""
    return _unescape(key[len(PREPARATION_PREFIX) :].decode())


def _read_quantity(wanted: type, value: Any) -> Any:
    return Quantity.from_json_value(value)


_READERS: dict[bytes, msgspec.json.Decoder[Any]] = {
    place: msgspec.json.Decoder(row, dec_hook=_read_quantity)
    for place, row in (
        (DEVICE_PREFIX, DeviceRow),
        (COUNTER_PREFIX, CounterRow),
        (PREPARATION_PREFIX, PreparationRow),
    )
}


class _Format(msgspec.Struct, frozen=True):
    format: int = 0


def read_row(key: bytes, value: bytes) -> Any:
    """Decode the row at a key; raises `DecodeError` for a format that this dray does not understand."""
    place = key[: key.find(b"/", len(LEDGER_PREFIX)) + 1]
    try:
        row = _READERS[place].decode(value)
    except (KeyError, msgspec.MsgspecError, ValueError) as broken:
        raise DecodeError(
            f"the ledger's row `{_format_key(key)}` is not readable: {_explain_unreadable(value, broken)}"
        ) from None
    if row.format != ROW_FORMAT:
        raise DecodeError(
            f"the ledger's row `{_format_key(key)}` is not readable: {_explain_unreadable(value, None)}"
        )
    return row


def _explain_unreadable(value: bytes, broken: Exception | None) -> str:
    try:
        written = msgspec.json.decode(value, type=_Format).format
    except msgspec.MsgspecError:
        written = 0
    if written > ROW_FORMAT:
        return f"it has format {written}, written by a newer dray; this one reads format {ROW_FORMAT}"
    return f"{broken}; `dray doctor ledger --repair` writes it anew"


def _format_key(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


def encode_row(row: AnyRow) -> bytes:
    """Encode a row."""
    return write_json(row)
