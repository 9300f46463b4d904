"""A warning before a taint rule goes too far: how many devices and pods one concerns that selects everything.

Kubernetes accepts such a rule without a word, and so is it accepted here; but an empty selector is easily
written by mistake, and with `NoExecute` it ends every pod that has devices. Whoever writes one is told what
there is to lose, with the answer. Slices and claims are only glanced at: of each no more is read than what is
counted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.devices.taint_rules import rule_selects_everything
from dray.api.kinds import get_kind
from dray.api.resource import DeviceTaintRule
from dray.server.admission.change import ADMITTED, DELETE, AdmissionEffects, ObjectChange
from dray.server.watch.cache import WatchCache

_RULES: Final = get_kind("resource.k8s.io", "DeviceTaintRule")
_SLICES: Final = get_kind("resource.k8s.io", "ResourceSlice")
_CLAIMS: Final = get_kind("resource.k8s.io", "ResourceClaim")
_PATH: Final = "spec.deviceSelector"


class _Present(msgspec.Struct, frozen=True):
    """Something of which only counts that it is there."""


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
    """Tells whoever writes a rule for every device what that means just now."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def admit(self, change: ObjectChange) -> AdmissionEffects:
        if change.kind is not _RULES or change.operation == DELETE or change.subresource:
            return ADMITTED
        rule: DeviceTaintRule = change.view
        known: DeviceTaintRule | None = change.old_view
        if not rule_selects_everything(rule) or (known is not None and known.spec == rule.spec):
            return ADMITTED
        return AdmissionEffects(warnings=(f"{_PATH}: {self._describe_impact()}",))

    def _describe_impact(self) -> str:
        devices = sum(len(_read_slice(held.value).spec.devices) for held in self._cache.list_objects(_SLICES))
        claims = [_read_claim(held.value).status for held in self._cache.list_objects(_CLAIMS)]
        held = [status for status in claims if status.allocation is not None]
        taken = sum(len(each.allocation.devices.results) for each in held if each.allocation is not None)
        pods = {user.uid for each in held for user in each.reserved_for if user.resource == "pods"}
        return (
            f"devices published now: {devices}; devices given to claims: {taken}; pods that may use them: "
            f"{len(pods)}"
        )
