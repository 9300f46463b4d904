"""Records of prepared claims, as a driver stores them, and their conversion to what authors see.

Rules for this file: only structs and conversions. Parameters are stored as they were written and decoded
again when they are read: the schema may have changed in an update, and parameters that it no longer accepts
are left out, so that they do not keep a device from being unprepared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from dray.driver.base import Claim, ClassicClaim, Consumer, Got, Parameters, Setting
from dray.driver.parameters import InvalidParametersError, decode_parameters
from dray.values.quantity import Quantity


class PreparedRecordStage(StrEnum):
    """The stage of a claim."""

    PREPARING = "preparing"
    """`prepare` has begun; how far it got is unknown."""
    PREPARED = "prepared"
    UNPREPARING = "unpreparing"
    """`unprepare` has begun; how far it got is unknown."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of stored records; members that a later version wrote are ignored."""


class SettingRecord(_Record, frozen=True):
    """A piece of configuration."""

    source: str = ""
    written: str = ""


class ClaimDeviceRecord(_Record, frozen=True):
    """A device of a claim."""

    request: str = ""
    subrequest: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = ""
    consumed: dict[str, str] = {}
    admin: bool = False
    config: tuple[SettingRecord, ...] = ()


class PreparedDeviceRecord(_Record, frozen=True):
    """A device in the reply to the agent."""

    request: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = ""
    cdi: tuple[str, ...] = ()
    status: dict[str, Any] | None = None
    """The device's entry in the status of the claim."""


class PreparedClaimRecord(_Record, frozen=True):
    """A claim that this driver prepares, has prepared, or unprepares."""

    uid: str
    namespace: str = ""
    name: str = ""
    classic: bool = False
    attributes: dict[str, str] = {}
    parameters: str = ""
    stage: PreparedRecordStage = PreparedRecordStage.PREPARING
    boot_id: str = ""
    devices: tuple[ClaimDeviceRecord, ...] = ()
    answers: tuple[PreparedDeviceRecord, ...] = ()
    file: str = ""
    """The digest of the claim's CDI file; empty when it needs none."""
    consumers: tuple[str, ...] = ()
    """Uids of the consumers that the claim was reserved for."""

    @property
    def label(self) -> str:
        """The claim, for messages."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid

    def to_claim(self, schemas: Parameters) -> Claim | ClassicClaim:
        """Convert to the claim that an author sees."""
        if self.classic:
            written = self.parameters.encode()
            parameters = _decode_parameters(schemas, written)
            return ClassicClaim(self.namespace, self.name, self.uid, self.attributes, parameters, written)
        return Claim(
            self.namespace,
            self.name,
            self.uid,
            tuple(_to_got(each, schemas) for each in self.devices),
            tuple(Consumer("", uid) for uid in self.consumers),
        )


class UnpreparedClaimRecord(_Record, frozen=True):
    """A claim that was unprepared: late calls to prepare it are refused."""

    uid: str
    boot_id: str = ""
    consumers: tuple[str, ...] = ()
    """Uids of the consumers it was reserved for then."""
    at: float = 0.0
    """Seconds since 1970."""


def build_record(
    claim: Claim | ClassicClaim, boot_id: str, consumers: tuple[str, ...] = ()
) -> PreparedClaimRecord:
    """Build the record that is stored before work on a claim begins."""
    if isinstance(claim, ClassicClaim):
        return PreparedClaimRecord(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            classic=True,
            attributes=dict(claim.attributes),
            parameters=claim.written.decode(),
            boot_id=boot_id,
            consumers=consumers,
        )
    return PreparedClaimRecord(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        boot_id=boot_id,
        devices=tuple(_to_device_record(got) for got in claim.devices),
        consumers=consumers or tuple(each.uid for each in claim.reserved_for),
    )


def collect_device_keys(record: PreparedClaimRecord) -> frozenset[tuple[str, str, str]]:
    """Return pool, name and share of each device of a claim."""
    return frozenset((each.pool, each.device, each.share_id) for each in record.devices)


def format_devices(devices: Iterable[tuple[str, str, str]]) -> str:
    """Format devices for a message."""
    return ", ".join(f"`{pool}/{device}`" for pool, device, _ in sorted(devices))


def _to_device_record(got: Got) -> ClaimDeviceRecord:
    return ClaimDeviceRecord(
        request=got.request,
        subrequest=got.subrequest,
        pool=got.pool,
        device=got.device,
        share_id=got.share_id,
        consumed={name: str(amount) for name, amount in got.consumed.items()},
        admin=got.admin,
        config=tuple(SettingRecord(source=each.source, written=each.written.decode()) for each in got.config),
    )


def _to_got(record: ClaimDeviceRecord, schemas: Parameters) -> Got:
    return Got(
        request=record.request,
        subrequest=record.subrequest,
        pool=record.pool,
        device=record.device,
        share_id=record.share_id,
        consumed={name: Quantity.parse(text) for name, text in record.consumed.items()},
        admin=record.admin,
        config=tuple(_decode_settings(record, schemas)),
    )


def _decode_settings(record: ClaimDeviceRecord, schemas: Parameters) -> Iterator[Setting]:
    for each in record.config:
        written = each.written.encode()
        parameters = _decode_parameters(schemas, written)
        if parameters is not None:
            yield Setting(each.source, parameters, written)


def _decode_parameters(schemas: Parameters, written: bytes) -> Any:
    with suppress(InvalidParametersError):
        return decode_parameters(schemas, written) if written else None
    return None
