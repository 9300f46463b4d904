"""A classic class: which driver, with which parameters of the administrator."""

from __future__ import annotations

import msgspec

from dray.api.meta import NO_OPAQUE, ObjectMeta, Value, always


class ResourceClass(Value, frozen=True):
    """Which driver allocates, with what the administrator wants it to know."""

    api_version: str = always("cdi.k8s.io/v1alpha1")
    kind: str = always("ResourceClass")
    metadata: ObjectMeta = ObjectMeta()
    driver_name: str = ""
    parameters: msgspec.Raw = NO_OPAQUE
