"""Warnings about device taint rules that select every device: how many devices and pods they concern.

Kubernetes accepts such a rule without a warning. An empty selector is easily written by mistake, and with
`NoExecute` it evicts every pod that has devices; so the response says how many there are. Slices and claims
are decoded only as far as they are counted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.devices.taint_rules import rule_selects_everything
from dray.api.kinds import get_kind
from dray.api.resource import DeviceTaintRule
from dray.server.admission.change import (
    ADMITTED,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionEffects,
    ObjectChange,
    RuleScope,
)
from dray.server.watch.cache import WatchCache

_RULES: Final = get_kind("resource.k8s.io", "DeviceTaintRule")
_SLICES: Final = get_kind("resource.k8s.io", "ResourceSlice")
_CLAIMS: Final = get_kind("resource.k8s.io", "ResourceClaim")
_PATH: Final = "spec.deviceSelector"


class _Present(msgspec.Struct, frozen=True):
    """A list element that is counted and not decoded."""


class _SliceSpec(msgspec.Struct, frozen=True):
    devices: tuple[_Present, ...] = ()


class _SliceDevices(msgspec.Struct, frozen=True):
    spec: _SliceSpec = _SliceSpec()


class _Devices(msgspec.Struct, frozen=True):
    results: tuple[_Present, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(msgspec.Struct, frozen=True):
    resource: str = ""
    uid: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] = ()


class _ClaimUsage(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_read_slice = msgspec.json.Decoder(_SliceDevices).decode
_read_claim = msgspec.json.Decoder(_ClaimUsage).decode


class TaintRuleWarnings:
    """Warns the author of a rule that selects every device."""

    scopes: Final = (RuleScope((_RULES,), (CREATE, UPDATE), subresources=("",)),)

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.operation == DELETE or change.subresource:
            return ADMITTED
        rule: DeviceTaintRule = change.view
        old: DeviceTaintRule | None = change.old_view
        if not rule_selects_everything(rule) or (old is not None and old.spec == rule.spec):
            return ADMITTED
        return AdmissionEffects(warnings=(f"{_PATH}: {self._describe_impact()}",))

    def _describe_impact(self) -> str:
        slices, claims = self._cache.list_objects(_SLICES), self._cache.list_objects(_CLAIMS)
        devices = sum(len(_read_slice(stored.value).spec.devices) for stored in slices)
        statuses = [_read_claim(stored.value).status for stored in claims]
        allocated = [status for status in statuses if status.allocation is not None]
        taken = sum(len(each.allocation.devices.results) for each in allocated if each.allocation is not None)
        pods = {user.uid for each in allocated for user in each.reserved_for if user.resource == "pods"}
        return (
            f"devices published now: {devices}; devices allocated to claims: {taken}; "
            f"pods that may use them: {len(pods)}"
        )
