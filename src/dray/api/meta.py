"""Base classes of API types, and the types all objects share: metadata, owners, conditions.

Rules for this file: a field that is a pointer in Go is `X | None`; every other field has the zero value as
default. Validation reports missing values, with a field path; the decoder does not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from dray.api.json_text import MAX_DEPTH, find_non_json_values, read_json, write_json
from dray.errors import DecodeError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# Only days that exist, so that code that calculates with a time need not check it.
_YEAR = "(?!0000)[0-9]{4}"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"{_YEAR}-(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    f"|{_YEAR}-(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|{_YEAR}-02-(?:0[1-9]|1[0-9]|2[0-8])"
    f"|{_LEAP_YEAR}-02-29"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_SIXTY = "[0-5][0-9]"

Timestamp = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^(?:{_DATE})T{_HOUR}:{_SIXTY}:{_SIXTY}(?:\.[0-9]+)?(?:Z|[+-]{_HOUR}:{_SIXTY})\Z",
        description="a time as RFC 3339, for example `2026-01-31T12:00:00Z`",
    ),
]

LEAF_KEY: Final = "leaf"
"""Under this key the metadata of a type names a value that has rules beyond its JSON type."""
TIME, MICRO_TIME = "Time", "MicroTime"

# Times in the one form that Go writes.
_PLAIN_TIME = f"^(?:{_DATE})T{_HOUR}:{_SIXTY}:{_SIXTY}"
Time = Annotated[str, msgspec.Meta(pattern=rf"{_PLAIN_TIME}Z\Z", extra={LEAF_KEY: TIME})]
MicroTime = Annotated[
    str, msgspec.Meta(pattern=rf"{_PLAIN_TIME}\.[0-9]{{6}}Z\Z", extra={LEAF_KEY: MICRO_TIME})
]

NO_OPAQUE = msgspec.Raw()
"""Opaque parameters that are not set."""


def normalize_opaque(holder: msgspec.Struct, name: str) -> None:
    """Bring the opaque field of a new struct to its one stored form; raises `ValueError` if it is not JSON.

    An absent value and null become `NO_OPAQUE` itself, which is left out on the wire; anything else becomes
    JSON without superfluous space, so that objects with the same content are equal.
    """
    text = bytes(getattr(holder, name))
    if not text:
        msgspec.structs.force_setattr(holder, name, NO_OPAQUE)
        return
    try:
        value = read_json(text)
    except DecodeError as broken:
        raise ValueError(str(broken)) from None
    # A short text with few brackets can neither be nested deeply nor hold huge numbers.
    if len(text) > 3000 or text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        errors = find_non_json_values(value)
        if errors:
            raise ValueError(str(errors[0]))
    normalized = NO_OPAQUE if value is None else msgspec.Raw(write_json(value))
    msgspec.structs.force_setattr(holder, name, normalized)


class ApiStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
    gc=False,
):
    """Base of all closed API values: frozen, camelCase on the wire, unknown fields are an error.

    A value is a tree, which reference counting frees. Garbage collection would visit the values of a whole
    cluster again and again, so it is told nothing of them.
    """


class CompositeApiStruct(ApiStruct, frozen=True):
    """Base of values with parts that are structs: an empty part is always the default itself.

    The encoder leaves out a part that *is* the default, not one that equals it. Equal objects must be
    written alike, whether their empty parts were written as `{}` or not at all.
    """

    def __post_init__(self) -> None:
        for name, empty in _list_empty_parts(type(self)):
            part = getattr(self, name)
            if part is not empty and part == empty:
                msgspec.structs.force_setattr(self, name, empty)


@lru_cache(maxsize=64)
def _list_empty_parts(cls: type[msgspec.Struct]) -> tuple[tuple[str, msgspec.Struct], ...]:
    fields = msgspec.structs.fields(cls)
    return tuple((field.name, field.default) for field in fields if isinstance(field.default, msgspec.Struct))


class Projection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of open projections: the fields dray reads; all other fields stay in its document.

    Trees without cycles, like closed values.
    """


class OwnerRef(ApiStruct, frozen=True):
    """An owner of this object; the object is deleted when its owners are gone."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True):
    """Name, identity, labels, owners and lifecycle of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerRef, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[dict[str, Any], ...] = ()


def always_encode(value: str | int) -> Any:
    """Return a default that is encoded even when it was not given, as Go does without `omitempty`."""
    return msgspec.field(default_factory=lambda: value)


class Condition(ApiStruct, frozen=True):
    """One observed aspect of an object, in the form all Kubernetes conditions have."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Timestamp | None = None
    reason: str = always_encode("")
    message: str = always_encode("")
