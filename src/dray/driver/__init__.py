"""The kit for driver authors: a driver is a small class, and the kit does the rest.

The kit publishes devices, serves the kubelet's gRPC protocols, keeps a checkpoint of prepared claims and
writes CDI files. It must not contain allocation, and it uses only the protocols of the kubelet and of the
Kubernetes API, so drivers run under a kubelet as well as under dray's agent. Drivers, `cluster` and the
command line import it; other services do not.

Some names are older than the ones in use now; drivers that import them keep working:

| older name | name |
| --- | --- |
| `Allocated` | `ClassicAllocation` |
| `BadDevice` | `InvalidDeviceError` |
| `FieldDropped` | `FieldDroppedError` |
| `Held` | `HeldClaim` |
| `Kit`, `KitChoices` | `DriverService`, `DriverServiceOptions` |
| `Need` | `ClassicClaimRequest` |
| `PoolTaken` | `PoolConflictError` |
| `Unavailable` | `NoAllocationAvailable` |
"""

from dray.api.meta import Condition
from dray.api.resource import Device, NetworkDeviceData
from dray.driver.base import (
    Claim,
    ClassicClaim,
    ClassicDriver,
    Consumer,
    DeviceMetadata,
    DeviceState,
    DeviceStatus,
    Driver,
    Got,
    HealthyDriver,
    Ready,
    Setting,
    TryAgainError,
)
from dray.driver.classic import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.devices import Capacity, InvalidDeviceError, Pool, Reach, Slice, device
from dray.driver.pci_attributes import read_pci_attributes
from dray.driver.publishing.dropped_fields import FieldDroppedError
from dray.driver.publishing.publisher import PoolConflictError, Publisher
from dray.driver.service.driver_service import DriverService, DriverServiceOptions
from dray.driver.service.program import run
from dray.values.quantity import Quantity
from dray.values.semver import Version
from dray.wire.cdi import DeviceNode, Hook, Mount

# Older names of the author API, see the module docstring.
Allocated = ClassicAllocation
BadDevice = InvalidDeviceError
FieldDropped = FieldDroppedError
Held = HeldClaim
Kit = DriverService
KitChoices = DriverServiceOptions
Need = ClassicClaimRequest
PoolTaken = PoolConflictError
Unavailable = NoAllocationAvailable

__all__ = [
    "Allocated",
    "BadDevice",
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
    "DeviceMetadata",
    "DeviceNode",
    "DeviceState",
    "DeviceStatus",
    "Driver",
    "DriverService",
    "DriverServiceOptions",
    "FieldDropped",
    "FieldDroppedError",
    "Got",
    "HealthyDriver",
    "Held",
    "HeldClaim",
    "Hook",
    "InvalidDeviceError",
    "Kit",
    "KitChoices",
    "Mount",
    "Need",
    "NetworkDeviceData",
    "NoAllocationAvailable",
    "Pool",
    "PoolConflictError",
    "PoolTaken",
    "Publisher",
    "Quantity",
    "Reach",
    "Ready",
    "Setting",
    "Slice",
    "TryAgainError",
    "Unavailable",
    "Version",
    "device",
    "read_pci_attributes",
    "run",
]
