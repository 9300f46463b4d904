"""Devices that a closed feature gate keeps from new claims, but not from the accounts.

A device that somebody holds goes on drawing from its counters when the gate of its feature is closed.
So admission keeps such a device in its slice and marks it; the search refuses it with the reason given.

A slice that says nothing true without a feature is hidden as a whole. It still counts for the completeness
of its pool; what it said is kept for explanations alone.
"""

from __future__ import annotations

from dray.allocator.refusals import REASON_TEXTS, RefusalReason
from dray.api.resource import Device, ResourceSlice


class WithheldDevice(Device, frozen=True):
    """A device that no new claim gets, and why."""

    withheld: RefusalReason = RefusalReason.BINDING_CONDITIONS

    @property
    def is_selectable(self) -> bool:
        """Whether selectors may choose it all the same: a request for all devices then lacks one."""
        return self.withheld is not RefusalReason.BINDING_CONDITIONS

    @property
    def why(self) -> str:
        """What keeps it from new claims, in words."""
        return REASON_TEXTS[self.withheld]


def withhold(device: Device, reason: RefusalReason) -> WithheldDevice:
    """The device, kept from new claims."""
    fields = {name: getattr(device, name) for name in Device.__struct_fields__}
    return WithheldDevice(**fields, withheld=reason)


class HiddenSlice(ResourceSlice, frozen=True):
    """A slice that no node sees, with what was published."""

    published: ResourceSlice = ResourceSlice()
