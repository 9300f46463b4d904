"""Claim template: one claim is created from it per pod."""

from __future__ import annotations

from dray.api.meta import CompositeApiStruct, ObjectMeta, always_encode
from dray.api.resource.claim import ResourceClaimSpec


class ResourceClaimTemplateSpec(CompositeApiStruct, frozen=True):
    """Labels, annotations and spec that are copied into each claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(CompositeApiStruct, frozen=True):
    """A template from which one claim is created per pod."""

    api_version: str = always_encode("resource.k8s.io/v1")
    kind: str = always_encode("ResourceClaimTemplate")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
