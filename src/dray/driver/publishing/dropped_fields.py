"""What a server did not keep of a slice, and the feature gate that is probably off.

A server whose gate is off takes fields out and says so in a warning that nobody reads. A driver must know:
devices without their counters could be given out twice, and without priorities in the wrong order. So what
comes back is compared with what was sent.
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
    """One field that was sent and is not there: where, on which device, behind which gate if one is known."""

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
        return f"{where}: the server does not know the field, or somebody else changes slices on their way"


class FieldDroppedError(DrayError):
    """The server takes out what the driver publishes."""

    def __init__(self, dropped: Sequence[DroppedSliceField]) -> None:
        self.dropped = tuple(dropped)
        shown = [str(each) for each in dropped[:_MAX_SHOWN]]
        if len(dropped) > _MAX_SHOWN:
            shown.append(f"and {len(dropped) - _MAX_SHOWN} more")
        super().__init__(f"the server would drop what the driver publishes: {'; '.join(shown)}")


def find_required_gates(sent: ResourceSlice) -> frozenset[str]:
    """The feature gates that a slice needs."""
    return frozenset(
        gate
        for gate, patterns in _GATED_FIELDS.items()
        if any(find_fields(sent, pattern) for pattern in patterns)
    )


def find_dropped_fields(sent: ResourceSlice, stored: ResourceSlice) -> tuple[DroppedSliceField, ...]:
    """What was sent and is not stored; what the server filled in is no loss."""
    if merge_server_fields(sent, stored).spec == stored.spec:
        return ()
    gated = tuple(
        _build_dropped_field(place, gate, sent)
        for gate, patterns in _GATED_FIELDS.items()
        for pattern in patterns
        for place in sorted(set(find_fields(sent, pattern)) - set(find_fields(stored, pattern)))
    )
    if gated:
        return gated
    places = _find_lost_paths(to_document(sent)["spec"], to_document(stored).get("spec"), "spec")
    return tuple(_build_dropped_field(place, "", sent) for place in places)


def infer_dropped_fields(sent: ResourceSlice, invalid_paths: Iterable[str]) -> tuple[DroppedSliceField, ...]:
    """What a server must have dropped that complains about these places of a slice that is sound.

    Some fields leave something behind that is not valid without them, such as an attribute without a value.
    """
    about = {place.replace(".basic", "") for place in invalid_paths}
    return tuple(
        _build_dropped_field(place, gate, sent)
        for gate, patterns in _GATED_FIELDS.items()
        for pattern in patterns
        for place in find_fields(sent, pattern)
        if place.rpartition(".")[0] in about
    )


def _build_dropped_field(place: str, gate: str, sent: ResourceSlice) -> DroppedSliceField:
    device = ""
    if place.startswith("spec.devices["):
        position = place.removeprefix("spec.devices[").partition("]")[0]
        device = sent.spec.devices[int(position)].name
    return DroppedSliceField(sent.metadata.name, place, device, gate)


def _find_lost_paths(sent: Any, stored: Any, place: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            yield from _find_lost_paths(value, stored.get(name), f"{place}.{name}")
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for at, (one, other) in enumerate(zip(sent, stored, strict=True)):
            yield from _find_lost_paths(one, other, f"{place}[{at}]")
    elif sent != stored:
        yield place
