"""Parses the replies and errors of drivers into outcomes and messages for people.

A message names the driver and is one short line, because it becomes an event: drivers put stack traces into
their errors.

Rules for this file: pure; `driver_client` makes the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import grpc

from dray.node.plugins.driver_interface import (
    MISSING_ENTRY,
    ClaimRef,
    DeviceHealth,
    DriverCallFailure,
    DriverCallFault,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.wire import cdi

MAX_TEXT_LENGTH: Final = 240
"""Limit of a driver's text in characters."""

MAX_HEALTH_MESSAGE_BYTES: Final = 1024
"""The limit of `allocatedResourcesStatus[].resources[].message` in Kubernetes."""
_CUT: Final = "..."
"""The end of a health message that was too long, as the kubelet writes it."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
UNKNOWN: Final = "Unknown"
_HEALTH_STATES: Final = MappingProxyType({0: UNKNOWN, 1: HEALTHY, 2: UNHEALTHY})

_FAULTS: Final[Mapping[Any, DriverCallFault]] = MappingProxyType(
    {
        grpc.StatusCode.NOT_FOUND: DriverCallFault.NOT_FOUND,
        grpc.StatusCode.UNAVAILABLE: DriverCallFault.NO_ANSWER,
        grpc.StatusCode.DEADLINE_EXCEEDED: DriverCallFault.NO_ANSWER,
        grpc.StatusCode.CANCELLED: DriverCallFault.NO_ANSWER,
        grpc.StatusCode.UNIMPLEMENTED: DriverCallFault.NOT_SPOKEN,
    }
)
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e\u00a1-\u2027\u202f-\u2065\u2070-\uffef]+")


def sanitize_text(text: str, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Put a foreign text on one line of limited length; control characters become spaces."""
    line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def shorten_health_message(text: str) -> str:
    """Put a health message on one line, with as many bytes as a pod's status may have."""
    line = sanitize_text(text, MAX_HEALTH_MESSAGE_BYTES)
    encoded = line.encode()
    if len(encoded) <= MAX_HEALTH_MESSAGE_BYTES:
        return line
    return encoded[: MAX_HEALTH_MESSAGE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


_CONNECT_FAILED: Final = "failed to connect to all addresses"
_CONNECT_CAUSES: Final = (
    ("Connection refused", "no process listens at its socket"),
    ("No such file", "its socket is gone"),
    ("Permission denied", "its socket may not be used by this user"),
)


def describe_error(details: str) -> str:
    """Describe the details of a gRPC error for people; those of connection errors are long and vague."""
    if _CONNECT_FAILED in details:
        return next((text for sign, text in _CONNECT_CAUSES if sign in details), sanitize_text(details))
    return sanitize_text(details) or "no reason given"


def build_call_failure(driver: str, code: Any, details: str, timeout: float) -> DriverCallFailure:
    """Build the failure of a call that ended with a status code."""
    fault = _FAULTS.get(code, DriverCallFault.REFUSED)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return DriverCallFailure(fault, f"driver `{driver}` did not answer within {timeout:g} s")
    if code == grpc.StatusCode.UNAVAILABLE:
        return DriverCallFailure(fault, f"driver `{driver}` cannot be reached: {describe_error(details)}")
    return DriverCallFailure(fault, f"driver `{driver}`: {describe_error(details)} ({code.name})")


def build_refusal(driver: str, error: str) -> DriverCallFailure:
    """Build the failure of an error that a driver returned for one claim."""
    return DriverCallFailure(DriverCallFault.REFUSED, f"driver `{driver}`: {sanitize_text(error)}")


def parse_prepared(driver: str, claims: Iterable[ClaimRef], reply: Any) -> dict[str, PrepareOutcome]:
    """Parse the outcomes of a reply; an empty message means a claim without devices."""
    return {claim.uid: _parse_prepared_claim(driver, reply.claims.get(claim.uid)) for claim in claims}


def _parse_prepared_claim(driver: str, entry: Any) -> PrepareOutcome:
    if entry is None:
        return build_refusal(driver, MISSING_ENTRY)
    if entry.error:
        return build_refusal(driver, entry.error)
    devices = tuple(
        PreparedDevice(
            request_names=tuple(each.request_names),
            pool=each.pool_name,
            device=each.device_name,
            cdi=tuple(each.cdi_device_ids),
            share_id=getattr(each, "share_id", ""),  # v1beta1 has no such field
        )
        for each in entry.devices
    )
    return check_cdi_names(driver, devices)


def check_cdi_names(driver: str, devices: tuple[PreparedDevice, ...]) -> PrepareOutcome:
    """Return the devices, unless one has an invalid CDI name."""
    for each in devices:
        for name in each.cdi:
            try:
                cdi.parse_qualified_name(name)
            except ValueError as error:
                return build_refusal(driver, str(error))
    return devices


def parse_unprepared(driver: str, claims: Iterable[ClaimRef], reply: Any) -> dict[str, UnprepareOutcome]:
    """Parse the outcomes of a reply."""
    return {claim.uid: _parse_unprepared_claim(driver, reply.claims.get(claim.uid)) for claim in claims}


def _parse_unprepared_claim(driver: str, entry: Any) -> UnprepareOutcome:
    if entry is None:
        return build_refusal(driver, MISSING_ENTRY)
    return build_refusal(driver, entry.error) if entry.error else None


def parse_health(reply: Any) -> Sequence[DeviceHealth]:
    """Parse a message of the health stream."""
    return tuple(
        DeviceHealth(
            pool=each.device.pool_name,
            device=each.device.device_name,
            health=_HEALTH_STATES.get(each.health, UNKNOWN),
            message=shorten_health_message(each.message),
            updated=each.last_updated_time,
            timeout=float(max(0, each.health_check_timeout_seconds)),
        )
        for each in reply.devices
    )
