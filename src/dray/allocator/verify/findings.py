"""Input and findings of the verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dray.api.core import Node
from dray.api.resource import Device, DeviceClass, ResourceClaim, ResourceSlice

DeviceSelectorEvaluator = Callable[[str, str, Device], bool | str]
"""Expression, driver, device: true, false, or why there is no result."""


class AllocationRule(StrEnum):
    """The rules an allocation must keep."""

    CLAIMS = "OneResultPerClaim"
    REQUEST = "RequestExists"
    ALTERNATIVE = "OneAlternative"
    CLASS = "ClassExists"
    DEVICE = "DeviceExists"
    SELECTOR = "SelectorsHold"
    COUNT = "CountExact"
    ALL = "AllOfThem"
    TWICE = "NotTwice"
    IN_USE = "NotInUse"
    ADMIN = "AdminAccess"
    SHARE_ID = "ShareId"
    CONSUMED = "ConsumedCapacity"
    CAPACITY = "CapacityLeft"
    COUNTERS = "CountersLeft"
    TAINTS = "TaintsTolerated"
    CONSTRAINT = "ConstraintsHold"
    LIMIT = "ResultLimit"
    COPIES = "CopiedFields"
    NODE_SELECTOR = "NodeSelector"
    CONFIG = "Configuration"


@dataclass(frozen=True, slots=True)
class AllocationFinding:
    """One rule that an allocation breaks, and how, in a sentence."""

    rule: AllocationRule
    claim: str
    text: str

    def __str__(self) -> str:
        return f"claim {self.claim}: {self.text}" if self.claim else self.text


@dataclass(frozen=True, slots=True)
class VerificationInput:
    """The cluster an allocation was made in, seen from one node: published objects and existing claims."""

    slices: tuple[ResourceSlice, ...]
    classes: tuple[DeviceClass, ...]
    held: tuple[ResourceClaim, ...]
    node: Node
    evaluator: DeviceSelectorEvaluator
