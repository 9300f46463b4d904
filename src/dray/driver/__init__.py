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
from dray.driver.classic.controller import Allocated, ClassicController, Held, Need, Unavailable
from dray.driver.devices import BadDevice, Capacity, Pool, Reach, Slice, device
from dray.driver.publishing.dropped_fields import FieldDropped
from dray.driver.publishing.publisher import PoolTaken, Publisher
from dray.driver.service.driver_service import Kit, KitChoices
from dray.driver.service.program import run
from dray.values.quantity import Quantity
from dray.values.semver import Version
from dray.wire.cdi import DeviceNode, Hook, Mount

__all__ = [
    "Allocated",
    "BadDevice",
    "Capacity",
    "Claim",
    "ClassicClaim",
    "ClassicController",
    "ClassicDriver",
    "Condition",
    "Consumer",
    "Device",
    "DeviceNode",
    "DeviceState",
    "DeviceStatus",
    "Driver",
    "FieldDropped",
    "Got",
    "HealthyDriver",
    "Held",
    "Hook",
    "Kit",
    "KitChoices",
    "Mount",
    "Need",
    "NetworkDeviceData",
    "Pool",
    "PoolTaken",
    "Publisher",
    "Quantity",
    "Reach",
    "Ready",
    "Setting",
    "Slice",
    "Unavailable",
    "Version",
    "device",
    "run",
]
