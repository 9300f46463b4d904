"""A classic class: which driver, with which parameters of the administrator."""

from __future__ import annotations

import msgspec

from dray.api.meta import NO_OPAQUE, CompositeApiStruct, ObjectMeta, always_encode, normalize_opaque


class ResourceClass(CompositeApiStruct, frozen=True):
    """Which driver allocates, with what the administrator wants it to know."""

    api_version: str = always_encode("cdi.k8s.io/v1alpha1")
    kind: str = always_encode("ResourceClass")
    metadata: ObjectMeta = ObjectMeta()
    driver_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE

    def __post_init__(self) -> None:
        super().__post_init__()
        normalize_opaque(self, "parameters")
