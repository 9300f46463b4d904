"""The kit for driver authors: a driver is a small class, everything else is here.

Nothing here decides who gets a device, and nothing here knows an agent's or a server's inside: it speaks the
protocols of the kubelet and the Kubernetes API, so drivers run under either. Drivers import it, `cluster` and
the command line too; other services never do.
"""

from dray.api.meta import Condition
from dray.api.resource import Device, NetworkDeviceData
from dray.driver.base import (
    Claim,
    ClassicClaim,
    ClassicDriver,
    Consumer,
    DeviceState,
    DeviceStatus,
    Driver,
    Got,
    HealthyDriver,
    Ready,
    Setting,
)
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.devices import Capacity, InvalidDeviceError, Pool, Reach, Slice, device
from dray.driver.publishing.dropped_fields import FieldDroppedError
from dray.driver.publishing.publisher import PoolConflictError, Publisher
from dray.driver.service.driver_service import DriverService, DriverServiceOptions
from dray.driver.service.program import run
from dray.values.quantity import Quantity
from dray.values.semver import Version
from dray.wire.cdi import DeviceNode, Hook, Mount

__all__ = [
    "Capacity",
    "Claim",
    "ClassicAllocation",
    "ClassicClaim",
    "ClassicClaimRequest",
    "ClassicController",
    "ClassicDriver",
    "Condition",
    "Consumer",
    "Device",
    "DeviceNode",
    "DeviceState",
    "DeviceStatus",
    "Driver",
    "DriverService",
    "DriverServiceOptions",
    "FieldDroppedError",
    "Got",
    "HealthyDriver",
    "HeldClaim",
    "Hook",
    "InvalidDeviceError",
    "Mount",
    "NetworkDeviceData",
    "NoAllocationAvailable",
    "Pool",
    "PoolConflictError",
    "Publisher",
    "Quantity",
    "Reach",
    "Ready",
    "Setting",
    "Slice",
    "Version",
    "device",
    "run",
]
