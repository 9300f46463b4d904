"""Taint rule: a taint that an administrator puts on every selected device."""

from __future__ import annotations

from dray.api.meta import ApiStruct, CompositeApiStruct, Condition, ObjectMeta, always_encode
from dray.api.resource.device import DeviceTaint


class DeviceTaintSelector(ApiStruct, frozen=True):
    """Selects devices that match every field that is set. Without any field set it selects every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(CompositeApiStruct, frozen=True):
    """A taint, and the devices that get it; without a selector no device does."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(ApiStruct, frozen=True):
    """What the rule has done, or would do."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(CompositeApiStruct, frozen=True):
    """A taint that an administrator puts on devices, whichever driver publishes them."""

    api_version: str = always_encode("resource.k8s.io/v1")
    kind: str = always_encode("DeviceTaintRule")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
