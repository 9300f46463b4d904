"""The kinds that scheduler and controllers share when they run in one process.

Theory of operation: both want the same large kinds. One reflector per kind (`client/informers`) reads each
once, as a user of its own whose role may list and watch these kinds and nothing else; so no component gets a
permission that it did not have. Kinds that only one component wants are read as that component.
"""

from __future__ import annotations

from typing import Any

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node, Pod
from dray.api.devices.interning import DeviceInterner
from dray.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from dray.client.client import Client
from dray.client.informers.informer import strip_managed_fields
from dray.client.informers.shared_reflectors import ObjectTransform, SharedReflectors
from dray.controllers.kube_controllers import ClaimCreationObserver


def build_shared_reflectors(client: Client) -> SharedReflectors:
    """Build the reflectors of a process with several components; the client reads as
    `components.INFORMERS_USER`."""
    interner = DeviceInterner()

    def strip_slice(published: ResourceSlice) -> ResourceSlice:
        stripped: ResourceSlice = strip_managed_fields(published)
        return interner.intern_devices(stripped)

    transforms: dict[Any, ObjectTransform] = {
        Pod: strip_managed_fields,
        Node: strip_managed_fields,
        ResourceClaim: ClaimCreationObserver(),
        ClassicResourceClaim: strip_managed_fields,
        ResourceSlice: strip_slice,
        DeviceTaintRule: strip_managed_fields,
    }
    return SharedReflectors(client, transforms)
