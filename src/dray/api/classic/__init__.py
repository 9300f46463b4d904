"""API types of the classic path, `cdi.k8s.io/v1alpha1` (KEP-3063).

A classic claim is allocated by its driver's controller, which negotiates with the scheduler through the
claim's status. This package contains only structs; phase transitions and defaults are in `validation` and
`strategies`. Everything above `dray.api` may import it.
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
