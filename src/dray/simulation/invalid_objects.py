"""Invalid objects in files: those that an API server would refuse, with the location and the expected value.

Theory of operation: invalid objects are left out of the cluster and reported, so that they are never placed
or offered silently. Devices are the exception: whatever a claim holds stays in use, however wrong the claim
is. Amounts in an invalid status cannot be trusted, so such a claim holds its devices as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dray.api.core import Pod
from dray.api.fields import FieldError, FieldErrorType
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.strategies.gated_fields import DroppedField
from dray.claims.reservation import is_pod_finished

MAX_PROBLEMS_SHOWN = 5
"""Problems of one object that text output shows; JSON output has all of them."""
MAX_OBJECTS_SHOWN = 20
"""Objects that text output shows one by one."""

_UID_FIELD = re.compile(r"(metadata\.ownerReferences|status\.reservedFor)\[\d+\](\.uid)?")
_ALLOCATION_FIELD = "status.allocation"

DevicePath = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class ObjectProblem:
    """A field as it was written, its location, and what was expected there."""

    location: str
    field: str
    text: str

    def __str__(self) -> str:
        text, _, _ = self.text.partition("\n")  # What follows is an excerpt of an expression.
        return f"{self.field}: {text}" if self.field else text


@dataclass(frozen=True, slots=True)
class InvalidObject:
    """An object that a server would refuse, with all of its errors."""

    kind: str
    object: Any
    location: str
    problems: tuple[ObjectProblem, ...]
    dropped: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        namespace: str = self.object.metadata.namespace
        return namespace

    @property
    def name(self) -> str:
        name: str = self.object.metadata.name
        return name

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}".lstrip("/")

    @property
    def holds_devices(self) -> bool:
        """Whether it is a claim with devices, which stay in use."""
        return isinstance(self.object, ResourceClaim) and self.object.status.allocation is not None

    @property
    def needs_devices(self) -> bool:
        """Whether it is a pod or claim that would get devices if it were valid."""
        if isinstance(self.object, Pod):
            return bool(self.object.spec.resource_claims) and not is_pod_finished(self.object)
        return isinstance(self.object, ResourceClaim) and not self.holds_devices

    @property
    def holds_whole(self) -> bool:
        """Whether the amounts it holds cannot be believed."""
        return self.holds_devices and any(
            problem.field.startswith(_ALLOCATION_FIELD) for problem in self.problems
        )

    def format_lines(self) -> Iterator[str]:
        """A line per problem, as far as people want to read."""
        fate = (
            "is invalid, but the devices it holds stay in use"
            if self.holds_devices
            else "is invalid and left out"
        )
        name = f"{self.kind} {self.full_name}".rstrip()
        for problem in self.problems[:MAX_PROBLEMS_SHOWN]:
            yield f"{problem.location}: {name} {fate}: {problem}"
        if len(self.problems) > MAX_PROBLEMS_SHOWN:
            yield f"{self.location}: {name} has {len(self.problems) - MAX_PROBLEMS_SHOWN} more problems"

    def __str__(self) -> str:
        """What is wrong first, in a line."""
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        lost = "".join(f"; {line}" for line in self.dropped[:1])
        return f"invalid: {self.problems[0]}{more}{lost}"


def format_all_lines(invalid: Sequence[InvalidObject]) -> Iterator[str]:
    """What to tell people about everything that is invalid."""
    for each in invalid[:MAX_OBJECTS_SHOWN]:
        yield from each.format_lines()
    if len(invalid) > MAX_OBJECTS_SHOWN:
        yield f"{len(invalid) - MAX_OBJECTS_SHOWN} more objects are invalid; `-o json` lists them all"


def to_documents(invalid: Iterable[InvalidObject]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [
        {
            "kind": each.kind,
            "namespace": each.namespace,
            "name": each.name,
            "place": each.location,
            "devicesStayInUse": each.holds_devices,
            "problems": [
                {"place": problem.location, "field": problem.field, "text": problem.text}
                for problem in each.problems
            ],
        }
        for each in invalid
    ]


def is_relevant(error: FieldError, obj: Any) -> bool:
    """Whether an error counts in files: claims may belong to pods that have no identity, as in manifests.

    `dray allocate --write` writes such claims; it is a server that gives identities.
    """
    if not isinstance(obj, ResourceClaim):
        return True
    missing = (
        error.type in (FieldErrorType.REQUIRED, FieldErrorType.INVALID, FieldErrorType.DUPLICATE)
        and error.value == ""
    )
    return not (missing and _UID_FIELD.fullmatch(error.path))


def format_dropped_fields(dropped: Sequence[DroppedField], consequence: str = "dropped") -> Iterator[str]:
    """The warnings of a server about fields behind closed gates: one line per gate and object."""
    by_gate: dict[str, list[str]] = {}
    for each in dropped:
        by_gate.setdefault(each.gate, []).append(each.path)
    for gate, fields in by_gate.items():
        more = f" and {len(fields) - 1} more" if len(fields) > 1 else ""
        yield f"{fields[0]}{more}: {consequence}, because feature gate `{gate}` is off"


def hold_whole_devices(claim: ResourceClaim) -> ResourceClaim:
    """A claim whose devices are held as a whole, whatever its results say about shares and admin access."""
    allocation = claim.status.allocation
    assert allocation is not None
    admin = {one.name for one in claim.spec.devices.requests if one.exactly and one.exactly.admin_access}
    results = tuple(
        msgspec.structs.replace(
            result,
            share_id=None,
            consumed_capacity={},
            admin_access=result.admin_access if result.request in admin else None,
        )
        for result in allocation.devices.results
    )
    devices = msgspec.structs.replace(allocation.devices, results=results)
    allocation = msgspec.structs.replace(allocation, devices=devices)
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))


def filter_usable_slices(
    slices: Sequence[ResourceSlice], invalid: Iterable[InvalidObject], claims: Iterable[ResourceClaim]
) -> tuple[tuple[ResourceSlice, ...], tuple[str, ...]]:
    """Slices without the pools whose accounts are lost with an invalid slice, and what to say about those.

    A device that is held and no longer published would stop drawing from the counters of its pool.
    """
    lost: dict[tuple[str, str], str] = {}
    broken = [each.object for each in invalid if isinstance(each.object, ResourceSlice)]
    if broken:
        held = set(_iter_held_devices(claims))
        for published in broken:
            pool = (published.spec.driver, published.spec.pool.name)
            if any((*pool, device.name) in held for device in published.spec.devices):
                lost.setdefault(pool, published.metadata.name)
    if not lost:
        return tuple(slices), ()
    remarks = tuple(
        f"pool `{driver}/{pool}` is left out: claims hold devices of its invalid slice `{name}`"
        for (driver, pool), name in lost.items()
    )
    return tuple(s for s in slices if (s.spec.driver, s.spec.pool.name) not in lost), remarks


def _iter_held_devices(claims: Iterable[ResourceClaim]) -> Iterator[DevicePath]:
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            yield result.driver, result.pool, result.device
