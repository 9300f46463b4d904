"""Unknown fields: what an object has and this dray does not understand, carried by the decoded object.

Theory of operation: a newer Kubernetes has fields whose meaning we cannot know. To decode an object without
them is right for display and wrong for decisions: a device that may only be used under a condition would be
used without it. So the decoder of responses marks such an object: its metadata becomes
`MetaWithUnknownFields`, which every copy of the object keeps and no encoder writes. Whoever decides asks
`list_unknown_fields` and refuses. Fields under `metadata` and `status` never matter to a decision, and some
fields of `spec` are known not to; an object with only these is not marked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from dray.api.decode_report import UnknownField
from dray.api.kinds import Kind
from dray.api.meta import ObjectMeta

T = TypeVar("T")

HARMLESS_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # Another way to ask for the devices of the class; what a claim gets from it stays the same.
        "DeviceClass": frozenset({"spec.extendedResourceName"}),
        # Names the attribute that labels partitions in reports.
        "ResourceSlice": frozenset({"spec.partitionTypeAttribute"}),
    }
)
"""Fields of `spec` that change no allocation, by kind."""

UNSUPPORTED_FIELDS: Final = frozenset(
    {
        "compatibilityGroups",
        "derivedAttributes",
        "nodeAllocatableResources",
        "schedulingGroup",
        "skipNodeOperations",
        "workloadRef",
    }
)
"""Fields of Kubernetes whose meaning is known and not built yet."""

MAX_LISTED_FIELDS: Final = 3
MAX_MARKED_FIELDS: Final = 32
"""Fields that are kept of one object; one is enough to refuse it."""

_HARMLESS_PARTS: Final = ("metadata", "status")
_PART_END: Final = re.compile(r"[.\[]")
_INDEX: Final = re.compile(r"\[\d+\]")


class MetaWithUnknownFields(ObjectMeta, frozen=True):
    """Metadata of an object that has fields we do not understand, with their paths."""

    unknown_fields: tuple[str, ...] = ()


def mark_unknown_fields(obj: T, kind: Kind, unknown: Sequence[UnknownField]) -> T:
    """Return the object with those unknown fields that matter to decisions."""
    harmless = HARMLESS_FIELDS.get(kind.name, frozenset())
    paths = [
        field.path
        for field in unknown
        if _PART_END.split(field.path, maxsplit=1)[0] not in _HARMLESS_PARTS and field.path not in harmless
    ]
    if not paths:
        return obj
    return _replace_meta(obj, MetaWithUnknownFields, unknown_fields=tuple(paths[:MAX_MARKED_FIELDS]))


def list_unknown_fields(obj: Any) -> tuple[str, ...]:
    """Return the paths of the fields of an object that this dray does not understand."""
    metadata = obj.metadata
    return metadata.unknown_fields if isinstance(metadata, MetaWithUnknownFields) else ()


def remove_mark(obj: T) -> T:
    """Return the object without the mark, as it is written."""
    metadata = getattr(obj, "metadata", None)
    return _replace_meta(obj, ObjectMeta) if isinstance(metadata, MetaWithUnknownFields) else obj


def explain_unknown_fields(paths: Sequence[str], *, with_indexes: bool = True) -> str:
    """Say which fields are not understood; without indexes the text is the same for like objects."""
    shown = list(dict.fromkeys(path if with_indexes else _INDEX.sub("[]", path) for path in paths))
    listed = ", ".join(f"`{path}`" for path in shown[:MAX_LISTED_FIELDS])
    more = len(shown) - MAX_LISTED_FIELDS
    if more > 0:
        listed += f" and {more} more"
    known = all(path.rpartition(".")[2].partition("[")[0] in UNSUPPORTED_FIELDS for path in shown)
    verb = "is" if len(shown) == 1 else "are"
    return f"{listed} {verb} {'not supported by this dray yet' if known else 'unknown to this dray'}"


def _replace_meta(obj: T, meta_type: type[ObjectMeta], **more: Any) -> T:
    assert isinstance(obj, msgspec.Struct)
    known: Any = obj.metadata  # type: ignore[attr-defined]
    fields = {name: getattr(known, name) for name in ObjectMeta.__struct_fields__}
    return msgspec.structs.replace(obj, metadata=meta_type(**fields, **more))
