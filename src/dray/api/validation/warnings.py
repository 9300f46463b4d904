"""What is allowed and still surely a mistake: warnings that come with an accepted object.

Kubernetes sends such texts in `Warning` headers; `dray lint` prints them. Nothing here refuses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from dray.api.admission import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from dray.api.admission.webhook_configuration import Webhook
from dray.api.core import Pod
from dray.api.devices.taint_rules import selects_everything
from dray.api.fields import ROOT, Path
from dray.api.resource import (
    DeviceClaim,
    DeviceSubRequest,
    DeviceTaintRule,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dray.api.validation import limits
from dray.values.names import driver_name


@dataclass(frozen=True, slots=True)
class Caution:
    """One doubtful thing: where, and what should be known about it."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


Cautions: TypeAlias = Iterator[Caution]

_SPEC = ROOT.field("spec")


def warnings_of(obj: Any) -> list[Caution]:
    """Everything doubtful about an object, whether it is sound or not."""
    look = _LOOKS.get(type(obj))
    return list(look(obj)) if look is not None else []


def _claim(obj: ResourceClaim) -> Cautions:
    return _device_claim(obj.spec.devices, _SPEC)


def _template(obj: ResourceClaimTemplate) -> Cautions:
    return _device_claim(obj.spec.spec.devices, _SPEC.field("spec"))


def _device_claim(devices: DeviceClaim, spec: Path) -> Cautions:
    if not devices.requests:
        path = spec.field("devices", "requests")
        yield Caution(str(path), "the claim asks for nothing, so it is allocated without any device")
    for position, request in enumerate(devices.requests):
        if request.exactly is not None:
            yield from _count(request.exactly, spec, position)
        for rank, alternative in enumerate(request.first_available):
            yield from _count(alternative, spec, position, rank)


def _count(
    ask: ExactDeviceRequest | DeviceSubRequest, spec: Path, position: int, rank: int | None = None
) -> Cautions:
    most = limits.RESULTS_PER_ALLOCATION
    if most < ask.count <= limits.LARGEST_COUNT:
        place = spec.field("devices", "requests").index(position)
        path = place.field("exactly") if rank is None else place.field("firstAvailable").index(rank)
        what = "this alternative is never chosen" if isinstance(ask, DeviceSubRequest) else "it can never fit"
        text = f"{ask.count} devices are more than the {most} that one claim can hold; {what}"
        yield Caution(str(path.field("count")), text)


def _slice(obj: ResourceSlice) -> Cautions:
    if not obj.spec.devices and not obj.spec.shared_counters:
        yield Caution(str(_SPEC), "the slice has neither devices nor shared counters")
    if obj.spec.driver != obj.spec.driver.lower() and not driver_name(obj.spec.driver):
        text = f"driver names are compared exactly; lower case avoids surprises: `{obj.spec.driver.lower()}`"
        yield Caution(str(_SPEC.field("driver")), text)


def _taint_rule(obj: DeviceTaintRule) -> Cautions:
    path, effect = str(_SPEC.field("deviceSelector")), obj.spec.taint.effect
    if obj.spec.device_selector is None:
        yield Caution(path, "a rule without a selector selects no device; `{}` selects every device")
    elif selects_everything(obj):
        text = "the selector is empty: the rule taints every device of every driver"
        yield Caution(path, text + _MEANING.get(effect, ""))


_MEANING: Mapping[str, str] = MappingProxyType(
    {
        "NoExecute": ", and every pod that uses a device and does not tolerate it is evicted; with the "
        "effect `None` its status says how many that would be",
        "NoSchedule": ", and no device is given to requests that do not tolerate it",
    }
)


def _pod(obj: Pod) -> Cautions:
    used = {claim.name for c in _containers_of(obj) for claim in c.resources.claims}
    for position, entry in enumerate(obj.spec.resource_claims):
        if entry.name not in used:
            place = _SPEC.field("resourceClaims").index(position)
            text = f"no container uses `{entry.name}`; the pod waits for the claim and gets nothing from it"
            yield Caution(str(place), text)


def _containers_of(obj: Pod) -> tuple[Any, ...]:
    return obj.spec.init_containers + obj.spec.containers + obj.spec.ephemeral_containers


def _webhooks(obj: MutatingWebhookConfiguration | ValidatingWebhookConfiguration) -> Cautions:
    webhooks: Sequence[Webhook] = obj.webhooks
    for position, webhook in enumerate(webhooks):
        if not webhook.rules:
            path = ROOT.field("webhooks").index(position).field("rules")
            yield Caution(str(path), "the webhook has no rules, so it is never asked")


_LOOKS: Mapping[type, Callable[[Any], Cautions]] = MappingProxyType(
    {
        ResourceClaim: _claim,
        ResourceClaimTemplate: _template,
        ResourceSlice: _slice,
        DeviceTaintRule: _taint_rule,
        Pod: _pod,
        MutatingWebhookConfiguration: _webhooks,
        ValidatingWebhookConfiguration: _webhooks,
    }
)
