"""Built-in priority classes, which every cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SYSTEM_PRIORITY_CLASSES: Mapping[str, int] = MappingProxyType(
    {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
)
"""Priority values by name."""
