"""A classic class: which driver, with which parameters of the administrator."""

from __future__ import annotations

import msgspec

from dray.api.meta import NO_OPAQUE, ObjectMeta, Whole, always, settle


class ResourceClass(Whole, frozen=True):
    """Which driver allocates, with what the administrator wants it to know."""

    api_version: str = always("cdi.k8s.io/v1alpha1")
    kind: str = always("ResourceClass")
    metadata: ObjectMeta = ObjectMeta()
    driver_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, "parameters")
