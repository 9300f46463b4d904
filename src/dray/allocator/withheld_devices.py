"""Withheld devices: kept from new claims by a disabled feature gate, but still counted in usage.

A device in use draws from its counters whether or not the gate of its feature is enabled. So the gate filter
keeps such a device in its slice and marks it; the search refuses it with the reason given here.

A slice that is wrong without a feature is hidden as a whole. It still counts for the completeness of its
pool; its published content is kept for explanations only.
"""

from __future__ import annotations

from dray.allocator.refusals import REASON_TEXTS, RefusalReason
from dray.api.resource import Device, ResourceSlice


class WithheldDevice(Device, frozen=True):
    """A device that no new claim gets, and why."""

    withheld: RefusalReason = RefusalReason.BINDING_CONDITIONS

    @property
    def is_selectable(self) -> bool:
        """Whether selectors still match it: an "All" request that matches it cannot be satisfied."""
        return self.withheld is not RefusalReason.BINDING_CONDITIONS

    @property
    def why(self) -> str:
        """The text of the reason."""
        return REASON_TEXTS[self.withheld]


def withhold(device: Device, reason: RefusalReason) -> WithheldDevice:
    """Withhold a device from new claims."""
    fields = {name: getattr(device, name) for name in Device.__struct_fields__}
    return WithheldDevice(**fields, withheld=reason)


class HiddenSlice(ResourceSlice, frozen=True):
    """A slice that is visible to no node, with what was published."""

    published: ResourceSlice = ResourceSlice()
