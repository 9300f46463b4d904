"""Classic resource class: the driver and the administrator's parameters."""

from __future__ import annotations

import msgspec

from dray.api.meta import NO_OPAQUE, CompositeApiStruct, ObjectMeta, always_encode, normalize_opaque


class ResourceClass(CompositeApiStruct, frozen=True):
    """The driver that allocates, and the administrator's parameters for it."""

    api_version: str = always_encode("cdi.k8s.io/v1alpha1")
    kind: str = always_encode("ResourceClass")
    metadata: ObjectMeta = ObjectMeta()
    driver_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE

    def __post_init__(self) -> None:
        super().__post_init__()
        normalize_opaque(self, "parameters")
