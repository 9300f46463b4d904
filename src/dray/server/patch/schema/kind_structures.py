"""The structure of each kind: which lists and maps are atomic, sets, or keyed.

`get_structure(kind, version)` returns the tree of a kind, addressed by field: for pods,
`.get_field("spec").get_field("containers").map_keys` is `("name",)`, and `.element` is the structure of one
container. Kinds without a row have the common metadata and nothing else.
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
"""The structure of each kind, by group and name."""

_PLAIN = plain_kind(spec=ALWAYS_PRESENT_MAP, status=ALWAYS_PRESENT_MAP)


def get_structure(kind: Kind, version: str | None = None) -> Structure:
    """Return the structure of a kind.

    The versions of one kind differ only below atomic lists, so one tree serves them all.
    """
    del version
    return STRUCTURES.get((kind.group, kind.name), _PLAIN)
