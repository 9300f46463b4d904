"""The objects of the classic path, `cdi.k8s.io/v1alpha1` (KEP-3063).

A classic claim is allocated by its driver's controller, which negotiates with the scheduler through
the claim's status. Only shapes live here; legal transitions and defaults have files of their own.
"""

from dray.api.classic.resource_claim import (
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicResourceClaim,
    DriverSchedulingStatus,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.classic.resource_class import ResourceClass

__all__ = [
    "ClassicClaimSpec",
    "ClassicClaimStatus",
    "ClassicResourceClaim",
    "DriverSchedulingStatus",
    "ResourceClass",
    "SchedulerSchedulingStatus",
    "SchedulingStatus",
]
