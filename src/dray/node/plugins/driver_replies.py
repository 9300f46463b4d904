"""What a driver's replies and refusals mean: outcomes, and texts for people.

A text names the driver, is one line, and is short, because it becomes an event: drivers put stack traces into
their errors.

Rules for this file: pure; calls are made in `lines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import grpc

from dray.node.plugins.driver_interface import (
    NO_ENTRY,
    ClaimRef,
    DeviceHealth,
    Failure,
    Fault,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.wire import cdi

SHOWN: Final = 240
"""How many letters of what a driver says are worth showing."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
UNKNOWN: Final = "Unknown"
_STATES: Final = MappingProxyType({0: UNKNOWN, 1: HEALTHY, 2: UNHEALTHY})

_FAULTS: Final[Mapping[Any, Fault]] = MappingProxyType(
    {
        grpc.StatusCode.NOT_FOUND: Fault.NOT_FOUND,
        grpc.StatusCode.UNAVAILABLE: Fault.NO_ANSWER,
        grpc.StatusCode.DEADLINE_EXCEEDED: Fault.NO_ANSWER,
        grpc.StatusCode.CANCELLED: Fault.NO_ANSWER,
        grpc.StatusCode.UNIMPLEMENTED: Fault.NOT_SPOKEN,
    }
)
_UNSEEN: Final = re.compile(r"[^\x20-\x7e\u00a1-\u2027\u202f-\u2065\u2070-\uffef]+")


def plain(text: str, most: int = SHOWN) -> str:
    """A text of others on one line and not too long; what a terminal or log would obey is a space."""
    line = " ".join(_UNSEEN.sub(" ", text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


_CONNECTING: Final = "failed to connect to all addresses"
_UNCONNECTED: Final = (
    ("Connection refused", "nobody listens at its socket"),
    ("No such file", "its socket is gone"),
    ("Permission denied", "its socket may not be used by this user"),
)


def cause(details: str) -> str:
    """What gRPC gives as details, for people: its own words about connections are long and say little."""
    if _CONNECTING in details:
        return next((text for sign, text in _UNCONNECTED if sign in details), plain(details))
    return plain(details) or "no reason given"


def failure(driver: str, code: Any, details: str, timeout: float) -> Failure:
    """What to make of a call that ended with a code."""
    fault = _FAULTS.get(code, Fault.REFUSED)
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Failure(fault, f"driver `{driver}` did not answer within {timeout:g} s")
    if code == grpc.StatusCode.UNAVAILABLE:
        return Failure(fault, f"driver `{driver}` cannot be reached: {cause(details)}")
    return Failure(fault, f"driver `{driver}`: {cause(details)} ({code.name})")


def refused(driver: str, error: str) -> Failure:
    """What to make of an error that a driver gave for one claim."""
    return Failure(Fault.REFUSED, f"driver `{driver}`: {plain(error)}")


def prepared(driver: str, claims: Iterable[ClaimRef], reply: Any) -> dict[str, PrepareOutcome]:
    """Outcomes from a reply; a message without anything in it is a claim that needs no devices."""
    return {claim.uid: _prepared(driver, reply.claims.get(claim.uid)) for claim in claims}


def _prepared(driver: str, entry: Any) -> PrepareOutcome:
    if entry is None:
        return refused(driver, NO_ENTRY)
    if entry.error:
        return refused(driver, entry.error)
    devices = tuple(
        PreparedDevice(
            request_names=tuple(each.request_names),
            pool=each.pool_name,
            device=each.device_name,
            cdi=tuple(each.cdi_device_ids),
        )
        for each in entry.devices
    )
    return checked(driver, devices)


def checked(driver: str, devices: tuple[PreparedDevice, ...]) -> PrepareOutcome:
    """Devices, unless one has a name that no runtime would take."""
    for each in devices:
        for name in each.cdi:
            try:
                cdi.qualified(name)
            except ValueError as wrong:
                return refused(driver, str(wrong))
    return devices


def unprepared(driver: str, claims: Iterable[ClaimRef], reply: Any) -> dict[str, UnprepareOutcome]:
    """Outcomes from a reply."""
    return {claim.uid: _unprepared(driver, reply.claims.get(claim.uid)) for claim in claims}


def _unprepared(driver: str, entry: Any) -> UnprepareOutcome:
    if entry is None:
        return refused(driver, NO_ENTRY)
    return refused(driver, entry.error) if entry.error else None


def states(reply: Any) -> Sequence[DeviceHealth]:
    """What a message of the health stream says; the oldest version has neither message nor timeout."""
    return tuple(
        DeviceHealth(
            pool=each.device.pool_name,
            device=each.device.device_name,
            health=_STATES.get(each.health, UNKNOWN),
            message=plain(getattr(each, "message", "")),
            updated=each.last_updated_time,
            timeout=float(max(0, getattr(each, "health_check_timeout_seconds", 0))),
        )
        for each in reply.devices
    )
