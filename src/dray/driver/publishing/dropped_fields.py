"""Detection of fields that a server dropped from a slice, and of the feature gate that is probably off.

A server whose gate is off drops fields and only adds a warning to its response. A driver has to react:
devices without their counters could be allocated twice, and without priorities in another order. So the
response is compared with the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dray.api.codec import to_document
from dray.api.field_patterns import find_fields
from dray.api.resource import ResourceSlice
from dray.api.strategies.gated_fields import GATED_FIELDS
from dray.driver.publishing.pool_plan import merge_server_fields
from dray.errors import DrayError

_KIND: Final = "ResourceSlice.resource.k8s.io"
_GATED_FIELDS: Final = {gate: kinds[_KIND] for gate, kinds in GATED_FIELDS.items() if _KIND in kinds}
_MAX_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class DroppedSliceField:
    """A field that was sent and not stored, with its device and its feature gate if they are known."""

    slice: str
    field: str
    device: str = ""
    gate: str = ""

    def __str__(self) -> str:
        where = f"`{self.field}` of slice `{self.slice}`" + (
            f" (device `{self.device}`)" if self.device else ""
        )
        if self.gate:
            return f"{where}: feature gate `{self.gate}` is probably off on the server"
        return f"{where}: the server does not know the field, or a webhook changes slices"


class FieldDroppedError(DrayError):
    """The server drops fields that the driver publishes."""

    def __init__(self, dropped: Sequence[DroppedSliceField]) -> None:
        self.dropped = tuple(dropped)
        shown = [str(each) for each in dropped[:_MAX_SHOWN]]
        if len(dropped) > _MAX_SHOWN:
            shown.append(f"and {len(dropped) - _MAX_SHOWN} more")
        super().__init__(f"the server would drop what the driver publishes: {'; '.join(shown)}")


def find_required_gates(sent: ResourceSlice) -> frozenset[str]:
    """Return the feature gates that a slice needs."""
    return frozenset(
        gate
        for gate, patterns in _GATED_FIELDS.items()
        if any(find_fields(sent, pattern) for pattern in patterns)
    )


def find_dropped_fields(sent: ResourceSlice, stored: ResourceSlice) -> tuple[DroppedSliceField, ...]:
    """Return the fields that were sent and not stored; fields that the server filled in are ignored."""
    if merge_server_fields(sent, stored).spec == stored.spec:
        return ()
    gated = tuple(
        _build_dropped_field(path, gate, sent)
        for gate, patterns in _GATED_FIELDS.items()
        for pattern in patterns
        for path in sorted(set(find_fields(sent, pattern)) - set(find_fields(stored, pattern)))
    )
    if gated:
        return gated
    paths = _find_lost_paths(to_document(sent)["spec"], to_document(stored).get("spec"), "spec")
    return tuple(_build_dropped_field(path, "", sent) for path in paths)


def infer_dropped_fields(sent: ResourceSlice, invalid_paths: Iterable[str]) -> tuple[DroppedSliceField, ...]:
    """Infer the dropped fields from the paths at which a server calls a valid slice invalid.

    An object may be invalid without a dropped field, such as an attribute without a value.
    """
    parents = {path.replace(".basic", "") for path in invalid_paths}
    return tuple(
        _build_dropped_field(path, gate, sent)
        for gate, patterns in _GATED_FIELDS.items()
        for pattern in patterns
        for path in find_fields(sent, pattern)
        if path.rpartition(".")[0] in parents
    )


def _build_dropped_field(path: str, gate: str, sent: ResourceSlice) -> DroppedSliceField:
    device = ""
    if path.startswith("spec.devices["):
        position = path.removeprefix("spec.devices[").partition("]")[0]
        device = sent.spec.devices[int(position)].name
    return DroppedSliceField(sent.metadata.name, path, device, gate)


def _find_lost_paths(sent: Any, stored: Any, path: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            yield from _find_lost_paths(value, stored.get(name), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for position, (one, other) in enumerate(zip(sent, stored, strict=True)):
            yield from _find_lost_paths(one, other, f"{path}[{position}]")
    elif sent != stored:
        yield path
