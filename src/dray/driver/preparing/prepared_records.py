"""What a driver writes down about the claims it prepared, so that it can be read after any crash.

Rules for this file: shapes, and the way between them and what authors see. Parameters are kept as they were
written and decoded anew: the schema may be another after an update, and what it does not accept any more is
left out rather than in the way of giving a device back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from dray.driver.base import Claim, ClassicClaim, Consumer, Got, Parameters, Setting
from dray.driver.parameters import InvalidParametersError, decode_parameters
from dray.values.quantity import Quantity


class PreparedRecordStage(StrEnum):
    """How far a claim has come."""

    PREPARING = "preparing"
    """Work has begun, and nobody knows how far it got."""
    PREPARED = "prepared"
    UNPREPARING = "unpreparing"
    """Giving back has begun, and nobody knows how far it got."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of what is kept; members that a later program wrote are passed over."""


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
    """What goes into the claim about it."""


class PreparedClaimRecord(_Record, frozen=True):
    """A claim that this driver prepares, has prepared, or gives back."""

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
    """Uids of those that the claim was reserved for."""

    @property
    def label(self) -> str:
        """The claim, for messages."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid

    def to_claim(self, schemas: Parameters) -> Claim | ClassicClaim:
        """The claim as an author sees it."""
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
    """A claim that was given back: late calls to prepare it are refused."""

    uid: str
    boot_id: str = ""
    consumers: tuple[str, ...] = ()
    """Uids of those it was reserved for then."""
    at: float = 0.0
    """Seconds since 1970."""


def build_record(
    claim: Claim | ClassicClaim, boot_id: str, consumers: tuple[str, ...] = ()
) -> PreparedClaimRecord:
    """What is written down before work on a claim begins."""
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
