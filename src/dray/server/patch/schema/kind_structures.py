"""What the lists and maps of a kind are: whole, sets, or items by key.

`structure_of(kind)` is the tree of a kind, addressed by field: `structure_of(pod).of_field("spec")
.of_field("containers").map_keys` is `("name",)`, and `.items` is what one container is. Kinds without a row
have the metadata that all have, and beyond it nothing special.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dray.api.kinds import Kind
from dray.server.patch.schema.field_structure import ALWAYS_PRESENT_MAP, ANY, Structure
from dray.server.patch.schema.tables.cluster_kinds import CLUSTER
from dray.server.patch.schema.tables.core_kinds import CORE
from dray.server.patch.schema.tables.device_kinds import DEVICES
from dray.server.patch.schema.tables.shared_fragments import define_kind as plain_kind
from dray.server.patch.schema.tables.workload_kinds import WORKLOADS

__all__ = ["ANY", "STRUCTURES", "Structure", "get_structure"]

STRUCTURES: Mapping[tuple[str, str], Structure] = MappingProxyType(
    {**CORE, **DEVICES, **WORKLOADS, **CLUSTER}
)
"""Group and name of a kind, and what its objects are."""

_PLAIN = plain_kind(spec=ALWAYS_PRESENT_MAP, status=ALWAYS_PRESENT_MAP)


def get_structure(kind: Kind, version: str | None = None) -> Structure:
    """What objects of a kind are.

    The versions of one kind differ only below lists that are replaced whole, so one tree serves them all.
    """
    del version
    return STRUCTURES.get((kind.group, kind.name), _PLAIN)
