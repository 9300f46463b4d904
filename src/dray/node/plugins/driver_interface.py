"""How the agent sees a driver of its node: a line on which claims are prepared and given back.

Whatever a driver speaks (DRA v1, v1beta1 or the classic protocol), it is the same line here, and what went
wrong is a value with a text for people: which driver, what it was asked, what it said. An outcome is there
for every claim that was asked for, also when the driver did not answer at all.

Rules for this file: values and the protocol only. How bytes travel is in `lines`, who is there in `registry`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as drivers are told of it; classic drivers get back in `cdi` what their prepare returned."""

    namespace: str
    name: str
    uid: str
    cdi: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device that is ready, and the CDI devices by which a container gets it.

    A driver that names no requests means all of the claim. The classic protocol knows no devices, only CDI
    names: then pool and device are empty.
    """

    request_names: tuple[str, ...] = ()
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()


class DriverCallFault(StrEnum):
    """What kind of failure it was; what to do next depends on nothing else."""

    REFUSED = "refused"
    """The driver answered, and the answer is an error."""
    NOT_FOUND = "not found"
    """The driver does not know the claim (code 5): look whether it is still there, then ask again."""
    NO_ANSWER = "no answer"
    """Nobody answered, or not in time: what became of it is unknown, and the driver is asked again."""
    NOT_SPOKEN = "not spoken"
    """The driver has no service that we know."""


@dataclass(frozen=True, slots=True)
class DriverCallFailure:
    """Why a claim is not prepared, or not given back: brief, with the driver's name and cause."""

    fault: DriverCallFault
    text: str

    def __str__(self) -> str:
        return self.text


PrepareOutcome = tuple[PreparedDevice, ...] | DriverCallFailure
"""The devices that are ready; none is an answer too."""
UnprepareOutcome = DriverCallFailure | None
"""None when the driver has let go of the claim."""

MISSING_ENTRY: Final = "the driver's reply has no entry for this claim"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What a driver says about one of its devices."""

    pool: str
    device: str
    health: str
    """`Healthy`, `Unhealthy` or `Unknown`, as a pod's status has it."""
    message: str = ""
    updated: int = 0
    """When the driver last looked, in seconds since 1970."""
    timeout: float = 0.0
    """After how many seconds without news the state counts as unknown; 0 leaves that to the agent."""


class DriverClient(Protocol):
    """A driver that is registered on this node."""

    @property
    def name(self) -> str: ...

    @property
    def classic(self) -> bool:
        """Whether it speaks the classic protocol, whose claims are of `cdi.k8s.io`."""
        ...

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        """Have claims prepared; an outcome for each, by uid. Never raises for what a driver does."""
        ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        """Have claims given back; an outcome for each, by uid. Never raises for what a driver does."""
        ...

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        """The states of all its devices, for as long as the driver streams; None when it never does."""
        ...
