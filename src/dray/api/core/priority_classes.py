"""Priority classes that every cluster has, without anybody making them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SYSTEM_PRIORITY_CLASSES: Mapping[str, int] = MappingProxyType(
    {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
)
"""Names, and the numbers they stand for."""
