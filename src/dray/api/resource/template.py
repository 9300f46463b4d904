"""A template: makes one claim per pod."""

from __future__ import annotations

from dray.api.meta import ObjectMeta, Whole, always
from dray.api.resource.claim import ResourceClaimSpec


class ResourceClaimTemplateSpec(Whole, frozen=True):
    """Labels, annotations and spec that are copied into each claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Whole, frozen=True):
    """Makes one claim per pod."""

    api_version: str = always("resource.k8s.io/v1")
    kind: str = always("ResourceClaimTemplate")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
