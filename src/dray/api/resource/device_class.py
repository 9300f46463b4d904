"""Device class: selectors and configuration that an administrator defines under a name."""

from __future__ import annotations

from dray.api.meta import ApiStruct, CompositeApiStruct, ObjectMeta, always_encode
from dray.api.resource.allocation import OpaqueDeviceConfiguration
from dray.api.resource.claim import DeviceSelector


class DeviceClassConfiguration(ApiStruct, frozen=True):
    """Configuration for every device allocated through the class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True):
    """What a device must be to belong to the class, and its configuration."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()


class DeviceClass(CompositeApiStruct, frozen=True):
    """A named kind of device."""

    api_version: str = always_encode("resource.k8s.io/v1")
    kind: str = always_encode("DeviceClass")
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()
