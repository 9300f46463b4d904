"""Quota rules: names that a quota can limit, what an object counts under them, and whether a change fits.

Theory of operation: a quota is a table of names and amounts. An object counts one under
`count/<plural>.<group>` and under the short name that some core kinds have besides. A claim also counts the
devices it may get, per class: a request counts what it asks for, `All` the most that a claim can have, and
alternatives count the worst case, which is the largest number per class over the alternatives of one request.
Admin access counts like any other request. A change is allowed when, under every name that it raises, used
and added amounts stay within the limit; a change that lowers an amount is never refused.

This module must not contain where usage is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import KINDS, Kind
from dray.api.resource.claim import ALL
from dray.values.quantity import NANOS_PER_UNIT, Quantity

CLASS_DEVICES_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"
"""Devices of a class, behind the name of the class."""

MAX_DEVICES: Final = 32
"""As many devices as an allocation can have; what `All` counts."""

_FINISHED_PHASES: Final = ("Succeeded", "Failed")

SHORT_NAMES: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
"""Core kinds that are also counted under their plural alone."""

QuotaUsage = dict[str, int]


def build_count_name(kind: Kind) -> str:
    """The name under which objects of a kind are counted."""
    return f"count/{kind.plural}.{kind.group}" if kind.group else f"count/{kind.plural}"


_COUNTED: Final = frozenset(
    build_count_name(kind) for kind in KINDS if kind.namespaced and kind.stored_as is None
)


def is_counted(name: str) -> bool:
    """Whether a quota can limit this; other names limit nothing."""
    return (
        name in _COUNTED
        or name in SHORT_NAMES
        or (name.endswith(CLASS_DEVICES_SUFFIX) and name != CLASS_DEVICES_SUFFIX)
    )


class CountedRequest(Protocol):
    """A request or an alternative, as far as it is counted."""

    @property
    def device_class_name(self) -> str: ...
    @property
    def allocation_mode(self) -> str: ...
    @property
    def count(self) -> int: ...


class CountedClaimRequest(Protocol):
    """A request of a claim."""

    @property
    def exactly(self) -> Any: ...
    @property
    def first_available(self) -> Any: ...


def count_devices(requests: Iterable[CountedClaimRequest]) -> QuotaUsage:
    """How many devices of each class a claim may get at worst."""
    total: QuotaUsage = {}
    for request in requests:
        worst: QuotaUsage = {}
        for asked in (request.exactly, *request.first_available):
            if asked is not None:
                name = asked.device_class_name + CLASS_DEVICES_SUFFIX
                worst[name] = max(worst.get(name, 0), _count_requested(asked))
        for name, number in worst.items():
            total[name] = total.get(name, 0) + number
    return total


def _count_requested(asked: CountedRequest) -> int:
    if asked.allocation_mode == ALL:
        return MAX_DEVICES
    return max(asked.count, 0) or 1


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs read from objects; other fields are ignored."""


class _Asked(_Seen, frozen=True):
    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 0


class _Request(_Seen, frozen=True):
    exactly: _Asked | None = None
    first_available: tuple[_Asked, ...] = ()


class _Devices(_Seen, frozen=True):
    requests: tuple[_Request, ...] = ()


class _Spec(_Seen, frozen=True):
    devices: _Devices = _Devices()


class _Status(_Seen, frozen=True):
    phase: str = ""


class _Claim(_Seen, frozen=True):
    spec: _Spec = _Spec()


class _Pod(_Seen, frozen=True):
    status: _Status = _Status()


_CLAIM = msgspec.json.Decoder(_Claim)
_POD = msgspec.json.Decoder(_Pod)


def count_object(kind: Kind) -> QuotaUsage:
    """What any object of a kind counts."""
    counted = {build_count_name(kind): 1}
    if not kind.group and kind.plural in SHORT_NAMES:
        counted[kind.plural] = 1
    return counted


def count_pod(kind: Kind, phase: str) -> QuotaUsage:
    """What a pod counts: a finished pod is still an object, but no running pod."""
    counted = count_object(kind)
    return counted | {kind.plural: 0} if phase in _FINISHED_PHASES else counted


def count_claim(kind: Kind, requests: Iterable[CountedClaimRequest]) -> QuotaUsage:
    """What a claim counts: itself, and the devices it may get."""
    return count_object(kind) | count_devices(requests)


def count_usage(kind: Kind, value: bytes) -> QuotaUsage:
    """What an object counts, from the JSON of its internal version."""
    if (kind.group, kind.name) == ("", "Pod"):
        return count_pod(kind, _POD.decode(value).status.phase)
    if (kind.group, kind.name) == ("resource.k8s.io", "ResourceClaim"):
        return count_claim(kind, _CLAIM.decode(value).spec.devices.requests)
    return count_object(kind)


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """Names under which a change would go beyond a limit: added, used, limit."""

    names: Mapping[str, tuple[int, int, Quantity]]

    def format_message(self, quota: str) -> str:
        """The message in the format that clients of Kubernetes expect."""
        asked = ",".join(f"{name}={added}" for name, (added, _, _) in sorted(self.names.items()))
        used = ",".join(f"{name}={used}" for name, (_, used, _) in sorted(self.names.items()))
        hard = ",".join(f"{name}={limit}" for name, (_, _, limit) in sorted(self.names.items()))
        return f"exceeded quota: {quota}, requested: {asked}, used: {used}, limited: {hard}"


def find_excess(
    hard: Mapping[str, Quantity], used: Mapping[str, int], added: Mapping[str, int]
) -> QuotaExcess | None:
    """Whether a change goes beyond a limit under any name that it raises."""
    names = {
        name: (number, used.get(name, 0), hard[name])
        for name, number in added.items()
        if number > 0 and name in hard and (used.get(name, 0) + number) * NANOS_PER_UNIT > hard[name].nanos
    }
    return QuotaExcess(names) if names else None
