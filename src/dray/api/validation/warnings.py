"""Warnings about accepted objects: what is valid and almost certainly a mistake.

The server sends these texts in `Warning` headers, as Kubernetes does; `dray lint` prints them. A warning
never refuses an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from dray.api import limits
from dray.api.admission import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from dray.api.admission.webhook_configuration import Webhook
from dray.api.core import Pod
from dray.api.devices.taint_rules import rule_selects_everything
from dray.api.fields import ROOT, FieldPath
from dray.api.resource import (
    DeviceClaim,
    DeviceSubRequest,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.values.names import check_driver_name


@dataclass(frozen=True, slots=True)
class FieldWarning:
    """One warning: the path and the text."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


FieldWarnings: TypeAlias = Iterator[FieldWarning]

_SPEC = ROOT.child("spec")


def collect_warnings(obj: Any) -> list[FieldWarning]:
    """Return all warnings about an object, whether it is valid or not."""
    look = _WARNING_CHECKS.get(type(obj))
    return list(look(obj)) if look is not None else []


def _check_claim(obj: ResourceClaim) -> FieldWarnings:
    return _check_device_claim(obj.spec.devices, _SPEC)


def _check_template(obj: ResourceClaimTemplate) -> FieldWarnings:
    return _check_device_claim(obj.spec.spec.devices, _SPEC.child("spec"))


def _check_device_claim(devices: DeviceClaim, spec: FieldPath) -> FieldWarnings:
    if not devices.requests:
        path = spec.child("devices", "requests")
        yield FieldWarning(str(path), "the claim asks for nothing, so it is allocated without any device")
    for position, request in enumerate(devices.requests):
        if request.exactly is not None:
            yield from _check_count(request.exactly, spec, position)
        for rank, alternative in enumerate(request.first_available):
            yield from _check_count(alternative, spec, position, rank)


def _check_count(
    request: ExactDeviceRequest | DeviceSubRequest, spec: FieldPath, position: int, rank: int | None = None
) -> FieldWarnings:
    most = limits.RESULTS_PER_ALLOCATION
    if most < request.count <= limits.MAX_COUNT:
        place = spec.child("devices", "requests").index(position)
        path = place.child("exactly") if rank is None else place.child("firstAvailable").index(rank)
        what = (
            "this alternative is never chosen"
            if isinstance(request, DeviceSubRequest)
            else "it can never fit"
        )
        text = f"{request.count} devices are more than the {most} that one claim can hold; {what}"
        yield FieldWarning(str(path.child("count")), text)


def _check_slice(obj: ResourceSlice) -> FieldWarnings:
    if not obj.spec.devices and not obj.spec.shared_counters:
        yield FieldWarning(str(_SPEC), "the slice has neither devices nor shared counters")
    if obj.spec.driver != obj.spec.driver.lower() and not check_driver_name(obj.spec.driver):
        text = f"driver names are compared exactly; lower case avoids surprises: `{obj.spec.driver.lower()}`"
        yield FieldWarning(str(_SPEC.child("driver")), text)


def _check_taint_rule(obj: DeviceTaintRule) -> FieldWarnings:
    path, effect = str(_SPEC.child("deviceSelector")), obj.spec.taint.effect
    if obj.spec.device_selector is None:
        yield FieldWarning(path, "a rule without a selector selects no device; `{}` selects every device")
    elif rule_selects_everything(obj):
        text = "the selector is empty: the rule taints every device of every driver"
        yield FieldWarning(path, text + _EFFECT_CONSEQUENCES.get(effect, ""))


_EFFECT_CONSEQUENCES: Mapping[str, str] = MappingProxyType(
    {
        "NoExecute": ", and every pod that uses a device and does not tolerate it is evicted; with the "
        "effect `None` its status says how many that would be",
        "NoSchedule": ", and no device is given to requests that do not tolerate it",
    }
)


def _check_pod(obj: Pod) -> FieldWarnings:
    used = {claim.name for _, _, one in obj.spec.iterate_containers() for claim in one.resources.claims}
    for position, entry in enumerate(obj.spec.resource_claims):
        if entry.name not in used:
            place = _SPEC.child("resourceClaims").index(position)
            text = f"no container uses `{entry.name}`; the pod waits for the claim and gets nothing from it"
            yield FieldWarning(str(place), text)


def _check_webhooks(obj: MutatingWebhookConfiguration | ValidatingWebhookConfiguration) -> FieldWarnings:
    webhooks: Sequence[Webhook] = obj.webhooks
    for position, webhook in enumerate(webhooks):
        if not webhook.rules:
            path = ROOT.child("webhooks").index(position).child("rules")
            yield FieldWarning(str(path), "the webhook has no rules, so it is never called")


_WARNING_CHECKS: Mapping[type, Callable[[Any], FieldWarnings]] = MappingProxyType(
    {
        ResourceClaim: _check_claim,
        ResourceClaimTemplate: _check_template,
        ResourceSlice: _check_slice,
        DeviceTaintRule: _check_taint_rule,
        Pod: _check_pod,
        MutatingWebhookConfiguration: _check_webhooks,
        ValidatingWebhookConfiguration: _check_webhooks,
    }
)
