"""What a pod asks for, normalised: claims become choices of wants.

Theory of operation: an exact request is a choice with one want, a request with alternatives a choice
with one want each. After this there are no two shapes of requests. What no node could ever answer (an
unknown class, an unknown mode, more devices than a claim may hold) is an `AllocationFault` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from dray.errors import AllocationFault

MAX_RESULTS = 32
"""Devices one claim can hold."""

EVERY = -1
"""The count of a want for all matching devices."""

_MODES = (EXACT_COUNT, ALL)

Classes = Callable[[str], DeviceClass | None]


class Want(msgspec.Struct, frozen=True, eq=False):
    """One alternative made concrete.

    `wants_all` says that every matching device must be had; `key` is what it asks of a single device.
    """

    name: str
    class_name: str
    selectors: tuple[tuple[str, str], ...]
    count: int
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    amounts: tuple[tuple[str, int], ...]
    rules: tuple[Rule, ...]
    key: tuple[Any, ...]
    wants_all: bool


class Rule(msgspec.Struct, frozen=True, eq=False):
    """A constraint of a claim, with an identity of its own."""

    claim: int
    position: int
    attribute: str
    distinct: bool


class Choice(msgspec.Struct, frozen=True, eq=False):
    """A request as alternatives in order."""

    index: int
    claim: int
    request: str
    wants: tuple[Want, ...]


class Ask(msgspec.Struct, frozen=True, eq=False):
    """Everything a pod asks for at once.

    `minds_admin` and `configured` say whether any want has admin access, and any class configuration.
    """

    claims: tuple[ResourceClaim, ...]
    choices: tuple[Choice, ...]
    rules: tuple[Rule, ...]
    classes: dict[str, DeviceClass]
    minds_admin: bool
    configured: bool


def ask_of(claims: Sequence[ResourceClaim], class_named: Classes) -> Ask:
    """Normalise claims; raises `AllocationFault` for what no node could ever answer."""
    choices: list[Choice] = []
    rules: list[Rule] = []
    classes: dict[str, DeviceClass] = {}
    minds_admin = configured = False
    for index, claim in enumerate(claims):
        reader = _Reader(claim, index, class_named, classes)
        for request in claim.spec.devices.requests:
            choices.append(Choice(len(choices), index, request.name, reader.wants(request)))
        reader.check_limit()
        rules += reader.rules
        minds_admin |= reader.minds_admin
        configured |= reader.configured
    return Ask(tuple(claims), tuple(choices), tuple(rules), classes, minds_admin, configured)


class _Reader:
    """One claim while it is being normalised."""

    def __init__(
        self, claim: ResourceClaim, index: int, class_named: Classes, classes: dict[str, DeviceClass]
    ) -> None:
        self._claim = claim
        self._index = index
        self._class_named = class_named
        self._classes = classes
        self._least = 0
        self.minds_admin = self.configured = False
        constraints = claim.spec.devices.constraints
        self.rules = [self._rule(i, said) for i, said in enumerate(constraints)] if constraints else []

    def wants(self, request: DeviceRequest) -> tuple[Want, ...]:
        """The alternatives of a request, in order."""
        name, exactly, first = request.name, request.exactly, request.first_available
        if exactly is not None and not first:
            want = self._want(name, exactly, bool(exactly.admin_access))
            if want.count > 0:
                self._least += want.count
            return (want,)
        if first and exactly is None:
            wants = tuple([self._want(f"{name}/{sub.name}", sub, False) for sub in first])
            # A want for all counts as -1: how many that is only a node can tell.
            self._least += max(min([want.count for want in wants]), 0)
            return wants
        what = "both `exactly` and" if first else "neither `exactly` nor"
        raise self._fault(f"request `{name}`", f"has {what} `firstAvailable`; expected one of them")

    def check_limit(self) -> None:
        """Refuse a claim that asks for more devices than it can hold, whichever alternatives are taken."""
        if self._least > MAX_RESULTS:
            why = f"asks for {self._least} devices, but one claim can hold at most {MAX_RESULTS}"
            raise self._fault("spec.devices.requests", why)

    def _want(self, name: str, ask: ExactDeviceRequest | DeviceSubRequest, admin: bool) -> Want:
        if ask.allocation_mode not in _MODES:
            why = f"allocation mode `{ask.allocation_mode}` is unknown; expected `ExactCount` or `All`"
            raise self._fault(f"request `{name}`", why)
        if ask.count < 0:
            raise self._fault(f"request `{name}`", f"count is {ask.count}; expected 0 or more")
        class_name = ask.device_class_name
        device_class = self._classes.get(class_name) or self._class_of(name, class_name)
        selectors: tuple[tuple[str, str], ...] = ()
        if device_class.spec.selectors:
            selectors = self._owned(name, f"class {class_name}", device_class.spec.selectors)
        if ask.selectors:
            selectors += self._owned(name, f"request {name}", ask.selectors)
        amounts = self._amounts(name, ask.capacity) if ask.capacity is not None else ()
        every = ask.allocation_mode == ALL
        if admin:
            self.minds_admin = True
        return Want(
            name,
            class_name,
            selectors,
            EVERY if every else ask.count,
            admin,
            ask.tolerations,
            amounts,
            self._rules_for(name) if self.rules else (),
            (tuple([text for _owner, text in selectors]), ask.tolerations, amounts),
            every,
        )

    def _class_of(self, request: str, name: str) -> DeviceClass:
        found = self._class_named(name) if name else None
        if found is None:
            why = f"device class `{name}` does not exist"
            if not name:
                why = "names no device class; this is a kind of request we do not know"
            raise self._fault(f"request `{request}`", why)
        self._classes[name] = found
        if found.spec.config:
            self.configured = True
        return found

    def _owned(
        self, request: str, owner: str, selectors: tuple[DeviceSelector, ...]
    ) -> tuple[tuple[str, str], ...]:
        """The expressions of selectors, each with whom it belongs to."""
        found = []
        for selector in selectors:
            cel = selector.cel
            if cel is None:
                raise self._fault(f"request `{request}`", f"a selector of {owner} has no CEL expression")
            found.append((owner, cel.expression))
        return tuple(found)

    def _amounts(self, request: str, capacity: CapacityRequirements) -> tuple[tuple[str, int], ...]:
        found = []
        for name, amount in capacity.requests.items():
            nanos = amount.nanos
            if nanos < 0:
                raise self._fault(f"request `{request}`", f"asks for a negative amount of `{name}`")
            found.append((name, nanos))
        return tuple(found)

    def _rules_for(self, name: str) -> tuple[Rule, ...]:
        """The constraints that cover a request, by its own name or by that of the alternative."""
        covered = []
        for rule, said in zip(self.rules, self._claim.spec.devices.constraints, strict=True):
            if not said.requests or name in said.requests or name.partition("/")[0] in said.requests:
                covered.append(rule)
        return tuple(covered)

    def _rule(self, position: int, said: DeviceConstraint) -> Rule:
        match, distinct = said.match_attribute, said.distinct_attribute
        if (match is None) == (distinct is None):
            why = "is of a kind we do not know; expected one of `matchAttribute` and `distinctAttribute`"
            raise self._fault(f"spec.devices.constraints[{position}]", why)
        return Rule(self._index, position, match or distinct or "", distinct is not None)

    def _fault(self, where: str, why: str) -> AllocationFault:
        return AllocationFault(why, claim=named(self._claim), field=where)


def named(claim: ResourceClaim) -> str:
    """A claim as people call it: namespace and name."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}".lstrip("/")
