"""Normalised requests: claims become choices of alternatives.

Theory of operation: an exact request is a choice with one alternative, a `firstAvailable` request a choice
with several. Nothing behind this module distinguishes the two. A claim that no node could ever satisfy (an
unknown class, mode or field, more devices than a claim may have) raises `UnanswerableClaimError` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from dray.api.resource import (
    CapacityRequirements,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)
from dray.api.resource.claim import ALL, EXACT_COUNT
from dray.api.unknown_fields import explain_unknown_fields, list_unknown_fields
from dray.errors import UnanswerableClaimError
from dray.values.request_names import RequestName

MAX_RESULTS = 32
"""Devices one claim can hold."""

ALL_DEVICES = -1
"""The count of an alternative in mode "All"."""

_MODES = (EXACT_COUNT, ALL)

ClassLookup = Callable[[str], DeviceClass | None]


class SelectorOwnerKind(StrEnum):
    """The kinds of objects that selectors come from."""

    CLASS = "class"
    REQUEST = "request"


class SelectorOwner(msgspec.Struct, frozen=True, gc=False):
    """The class or request that a selector comes from."""

    kind: SelectorOwnerKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


OwnedSelector = tuple[SelectorOwner, str]
"""The owner and the expression of a selector; a plain tuple, because every pod builds some."""


class RequestAlternative(msgspec.Struct, frozen=True, eq=False):
    """One alternative of a request.

    `name` is `request/subrequest` for an alternative of `firstAvailable`, and the name of the request
    otherwise. `takes_all`: it needs every matching device. `key`: everything it asks of a single device.
    """

    name: str
    class_name: str
    selectors: tuple[OwnedSelector, ...]
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    amounts: tuple[tuple[str, int], ...]
    constraints: tuple[ClaimConstraint, ...]
    key: tuple[Any, ...]
    takes_all: bool
    request: str
    subrequest: str

    def find_owner(self, expression: str) -> SelectorOwner | None:
        """The class or request that a selector comes from."""
        return next((owner for owner, text in self.selectors if text == expression), None)


class ClaimConstraint(msgspec.Struct, frozen=True, eq=False):
    """A constraint of a claim, compared by identity."""

    claim_index: int
    position: int
    attribute: str
    distinct: bool


class RequestChoice(msgspec.Struct, frozen=True, eq=False):
    """A request: its alternatives in order of preference."""

    index: int
    claim_index: int
    request_name: str
    alternatives: tuple[RequestAlternative, ...]


class AllocationRequest(msgspec.Struct, frozen=True, eq=False):
    """The claims of a pod, normalised, to be allocated together.

    `has_admin_access` and `has_class_config` tell whether any alternative has admin access, and any class
    configuration.
    """

    claims: tuple[ResourceClaim, ...]
    choices: tuple[RequestChoice, ...]
    constraints: tuple[ClaimConstraint, ...]
    classes: dict[str, DeviceClass]
    has_admin_access: bool
    has_class_config: bool


def normalize_claims(claims: Sequence[ResourceClaim], find_class: ClassLookup) -> AllocationRequest:
    """Normalise claims; raises `UnanswerableClaimError` for one that no node could ever satisfy."""
    choices: list[RequestChoice] = []
    constraints: list[ClaimConstraint] = []
    classes: dict[str, DeviceClass] = {}
    has_admin_access = has_class_config = False
    for index, claim in enumerate(claims):
        reader = _ClaimNormalizer(claim, index, find_class, classes)
        reader.check_unknown_fields()
        for request in claim.spec.devices.requests:
            choices.append(
                RequestChoice(len(choices), index, request.name, reader.build_alternatives(request))
            )
        reader.check_limit()
        constraints += reader.constraints
        has_admin_access |= reader.has_admin_access
        has_class_config |= reader.has_class_config
    return AllocationRequest(
        tuple(claims), tuple(choices), tuple(constraints), classes, has_admin_access, has_class_config
    )


class _ClaimNormalizer:
    """Normalises one claim."""

    def __init__(
        self, claim: ResourceClaim, index: int, find_class: ClassLookup, classes: dict[str, DeviceClass]
    ) -> None:
        self._claim = claim
        self._index = index
        self._lookup_class = find_class
        self._classes = classes
        self._min_devices = 0
        self.has_admin_access = self.has_class_config = False
        constraints = claim.spec.devices.constraints
        self.constraints = (
            [self._build_constraint(i, spec) for i, spec in enumerate(constraints)] if constraints else []
        )

    def build_alternatives(self, request: DeviceRequest) -> tuple[RequestAlternative, ...]:
        """The alternatives of a request, in order."""
        name, exactly, first = request.name, request.exactly, request.first_available
        if exactly is not None and not first:
            alternative = self._build_alternative(name, (name, ""), exactly, bool(exactly.admin_access))
            if alternative.count > 0:
                self._min_devices += alternative.count
            return (alternative,)
        if first and exactly is None:
            names = [RequestName(name, sub.name) for sub in first]
            alternatives = tuple(
                [
                    self._build_alternative(str(full), full, sub, False)
                    for full, sub in zip(names, first, strict=True)
                ]
            )
            # Mode "All" counts as -1: how many devices that is depends on the node.
            self._min_devices += max(min([alternative.count for alternative in alternatives]), 0)
            return alternatives
        what = "both `exactly` and" if first else "neither `exactly` nor"
        raise self._build_error(f"request `{name}`", f"has {what} `firstAvailable`; expected one of them")

    def check_unknown_fields(self) -> None:
        """Raise for a claim that asks for something we do not understand."""
        paths = list_unknown_fields(self._claim)
        if paths:
            raise self._build_error("", explain_unknown_fields(paths))

    def check_limit(self) -> None:
        """Raise for a claim that asks for more devices than it can have, whichever alternatives are taken."""
        if self._min_devices > MAX_RESULTS:
            why = f"asks for {self._min_devices} devices, but one claim can hold at most {MAX_RESULTS}"
            raise self._build_error("spec.devices.requests", why)

    def _build_alternative(
        self,
        name: str,
        parts: tuple[str, str],
        spec: ExactDeviceRequest | DeviceSubRequest,
        admin: bool,
    ) -> RequestAlternative:
        """Build an alternative; `parts` are the names of its request and subrequest."""
        if spec.allocation_mode not in _MODES:
            why = f"allocation mode `{spec.allocation_mode}` is unknown; expected `ExactCount` or `All`"
            raise self._build_error(f"request `{name}`", why)
        if spec.count < 0:
            raise self._build_error(f"request `{name}`", f"count is {spec.count}; expected 0 or more")
        class_name = spec.device_class_name
        device_class = self._classes.get(class_name) or self._find_class(name, class_name)
        selectors: tuple[OwnedSelector, ...] = ()
        if device_class.spec.selectors:
            owner = SelectorOwner(SelectorOwnerKind.CLASS, class_name)
            selectors = self._read_expressions(name, owner, device_class.spec.selectors)
        if spec.selectors:
            owner = SelectorOwner(SelectorOwnerKind.REQUEST, name)
            selectors += self._read_expressions(name, owner, spec.selectors)
        amounts = self._read_amounts(name, spec.capacity) if spec.capacity is not None else ()
        every = spec.allocation_mode == ALL
        if admin:
            self.has_admin_access = True
        return RequestAlternative(
            name,
            class_name,
            selectors,
            ALL_DEVICES if every else spec.count,
            admin,
            spec.tolerations,
            amounts,
            self._select_constraints(name, parts[0]) if self.constraints else (),
            (tuple([text for _owner, text in selectors]), spec.tolerations, amounts),
            every,
            *parts,
        )

    def _find_class(self, request: str, name: str) -> DeviceClass:
        found = self._lookup_class(name) if name else None
        if found is None:
            why = f"device class `{name}` does not exist"
            if not name:
                why = "names no device class; this is a kind of request we do not know"
            raise self._build_error(f"request `{request}`", why)
        unknown = list_unknown_fields(found)
        if unknown:
            why = f"device class `{name}`: {explain_unknown_fields(unknown)}"
            raise self._build_error(f"request `{request}`", why)
        self._classes[name] = found
        if found.spec.config:
            self.has_class_config = True
        return found

    def _read_expressions(
        self, request: str, owner: SelectorOwner, selectors: tuple[DeviceSelector, ...]
    ) -> tuple[OwnedSelector, ...]:
        """The expressions of selectors, each with its owner (class or request)."""
        found = []
        for selector in selectors:
            cel = selector.cel
            if cel is None:
                raise self._build_error(
                    f"request `{request}`", f"a selector of {owner} has no CEL expression"
                )
            found.append((owner, cel.expression))
        return tuple(found)

    def _read_amounts(self, request: str, capacity: CapacityRequirements) -> tuple[tuple[str, int], ...]:
        found = []
        for name, amount in capacity.requests.items():
            nanos = amount.nanos
            if nanos < 0:
                raise self._build_error(f"request `{request}`", f"asks for a negative amount of `{name}`")
            found.append((name, nanos))
        return tuple(found)

    def _select_constraints(self, name: str, request: str) -> tuple[ClaimConstraint, ...]:
        """The constraints that cover an alternative, by its own name or by that of its request."""
        covered = []
        for constraint, spec in zip(self.constraints, self._claim.spec.devices.constraints, strict=True):
            if not spec.requests or name in spec.requests or request in spec.requests:
                covered.append(constraint)
        return tuple(covered)

    def _build_constraint(self, position: int, spec: DeviceConstraint) -> ClaimConstraint:
        match, distinct = spec.match_attribute, spec.distinct_attribute
        if (match is None) == (distinct is None):
            why = "is of a kind we do not know; expected one of `matchAttribute` and `distinctAttribute`"
            raise self._build_error(f"spec.devices.constraints[{position}]", why)
        return ClaimConstraint(self._index, position, match or distinct or "", distinct is not None)

    def _build_error(self, where: str, why: str) -> UnanswerableClaimError:
        return UnanswerableClaimError(why, claim=format_claim_name(self._claim), field=where)


def format_claim_name(claim: ResourceClaim) -> str:
    """Namespace and name of a claim, as messages show it."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}".lstrip("/")
