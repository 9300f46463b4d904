"""The checkpoint in which a kubelet records prepared claims (`dra_manager_state`).

Theory of operation: the file is a JSON object with the data as a string and a CRC-32 of that string. The
kubelet replaces the file as a whole, so a file that does not parse or has a wrong checksum is damaged, not
half written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

FILE_NAME: Final = "dra_manager_state"
_MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class DamagedCheckpointError(Exception):
    """The checkpoint cannot be used; the text says why."""


class _Envelope(msgspec.Struct, rename="pascal"):
    data: str
    checksum: int


class _Device(msgspec.Struct):
    cdi_device_ids: list[str] | None = msgspec.field(name="CDIDeviceIDs", default=None)


class _Driver(msgspec.Struct):
    devices: list[_Device] | None = msgspec.field(name="Devices", default=None)
    skipped_operations: list[str] | None = msgspec.field(name="skipNodeOperations", default=None)


class _Claim(msgspec.Struct):
    uid: str = msgspec.field(name="ClaimUID")
    name: str = msgspec.field(name="ClaimName", default="")
    namespace: str = msgspec.field(name="Namespace", default="")
    drivers: dict[str, _Driver] | None = msgspec.field(name="DriverState", default=None)


class _Content(msgspec.Struct):
    claims: list[_Claim] | None = msgspec.field(name="ClaimInfoStateList", default=None)


@dataclass(frozen=True, slots=True)
class CheckpointedClaim:
    """A claim that a kubelet prepares, has prepared or unprepares, with its CDI devices by driver."""

    uid: str
    label: str
    """`namespace/name`."""
    cdi_devices: tuple[tuple[str, tuple[str, ...]], ...]
    called_drivers: tuple[str, ...] = ()
    """The drivers that the kubelet calls to unprepare it; some devices need no calls."""

    def iter_cdi_devices(self) -> Iterator[tuple[str, str]]:
        """Yield the driver and the qualified name of each CDI device."""
        for driver, names in self.cdi_devices:
            yield from ((driver, name) for name in names)


def read_kubelet_checkpoint(path: Path) -> tuple[CheckpointedClaim, ...] | None:
    """Read the claims; None when there is no file. Raises `DamagedCheckpointError` and `OSError`."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > _MAX_FILE_BYTES:
        raise DamagedCheckpointError(f"it is larger than {_MAX_FILE_BYTES} bytes")
    return parse_kubelet_checkpoint(content)


def parse_kubelet_checkpoint(content: bytes) -> tuple[CheckpointedClaim, ...]:
    """Parse the file of a kubelet; raises `DamagedCheckpointError`."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        actual = zlib.crc32(envelope.data.encode())
        if actual != envelope.checksum:
            raise DamagedCheckpointError(f"its checksum is {envelope.checksum}, its content has {actual}")
        claims = msgspec.json.decode(envelope.data, type=_Content).claims or []
    except (msgspec.DecodeError, UnicodeEncodeError) as wrong:
        raise DamagedCheckpointError(str(wrong)) from None
    return tuple(_build_claim(claim) for claim in claims)


def _build_claim(claim: _Claim) -> CheckpointedClaim:
    devices = tuple(
        (driver, tuple(name for device in state.devices or () for name in device.cdi_device_ids or ()))
        for driver, state in sorted((claim.drivers or {}).items())
    )
    called = tuple(
        name for name, state in sorted((claim.drivers or {}).items()) if not state.skipped_operations
    )
    return CheckpointedClaim(claim.uid, f"{claim.namespace}/{claim.name}", devices, called)
