"""The interface of a driver client: it prepares and unprepares claims, whatever protocol the driver has.

A failure is a value with a text for people that names the driver and the cause. Every claim of a call has an
outcome, also when the driver did not reply at all.

Rules for this file: values and the protocol only. The clients are in `driver_client`, the registered drivers
in `registry`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as drivers receive it; `cdi` has the names that a classic driver returned from prepare."""

    namespace: str
    name: str
    uid: str
    cdi: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prepared device, and the CDI devices that add it to a container.

    Without request names it belongs to all requests of the claim. The classic protocol has no devices, only
    CDI names: then pool and device are empty.
    """

    request_names: tuple[str, ...] = ()
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()
    share_id: str = ""
    """The share of a device that several claims use; drivers that implement only v1beta1 leave it out."""


class DriverCallFault(StrEnum):
    """The kind of a failure, which alone decides the next step."""

    REFUSED = "refused"
    """The driver replied with an error."""
    NOT_FOUND = "not found"
    """The driver does not know the claim (code 5): check that it still exists, then call again."""
    NO_ANSWER = "no answer"
    """There was no reply in time: the outcome is unknown, and the driver is called again."""
    NOT_SPOKEN = "not spoken"
    """The driver implements no supported service."""


@dataclass(frozen=True, slots=True)
class DriverCallFailure:
    """Why a claim is not prepared or not unprepared: short, with the driver's name and the cause."""

    fault: DriverCallFault
    text: str

    def __str__(self) -> str:
        return self.text


PrepareOutcome = tuple[PreparedDevice, ...] | DriverCallFailure
"""The prepared devices, possibly none."""
UnprepareOutcome = DriverCallFailure | None
"""None when the driver has unprepared the claim."""

MISSING_ENTRY: Final = "the driver's reply has no entry for this claim"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """The health of a device as its driver reports it."""

    pool: str
    device: str
    health: str
    """`Healthy`, `Unhealthy` or `Unknown`, as a pod's status has it."""
    message: str = ""
    updated: int = 0
    """When the driver last checked it, in seconds since 1970."""
    timeout: float = 0.0
    """Seconds after which the report expires; 0 leaves that to the agent."""


class DriverClient(Protocol):
    """The client of a driver registered on this node."""

    @property
    def name(self) -> str: ...

    @property
    def classic(self) -> bool:
        """Whether it implements the classic protocol, whose claims are in the group `cdi.k8s.io`."""
        ...

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        """Prepare claims; return an outcome for each, by uid. Never raises for what a driver does."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        """Unprepare claims; return an outcome for each, by uid. Never raises for what a driver does."""
        ...

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        """Stream the health of all its devices; None when the driver has no such stream."""
        ...
