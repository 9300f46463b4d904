"""Errors of binding: the cluster is not what a placement was made for."""

from __future__ import annotations

from dray.errors import DrayError


class StalePlacementError(DrayError):
    """The cluster is not what the placement was made for; the message says what changed."""


class DevicesNotReadyError(StalePlacementError):
    """The devices are allocated and did not become ready; the message says which, and what they wait for."""


class PodGoneOrBoundError(StalePlacementError):
    """The pod is gone or has a node: what was written for it stays."""


class DuplicateAllocationError(StalePlacementError):
    """Another claim has the same devices; the message says which."""
