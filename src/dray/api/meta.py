"""What all objects share: the base of API values, metadata, owners, conditions.

Rules for this file: a field that Go would hold as a pointer is `X | None`; everything else has the zero
value as default. Absence is judged by validation, with a field path, and not by the decoder.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Timestamp = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)$",
        description="a time as RFC 3339, for example `2026-01-31T12:00:00Z`",
    ),
]

NO_OPAQUE = msgspec.Raw()
"""Opaque parameters that were not given."""


class Value(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    forbid_unknown_fields=True,
):
    """Base of all closed API values: frozen, camelCase on the wire, unknown fields are an error."""


class View(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of open projections: the fields we read; whatever else the object holds stays in its document."""


class OwnerRef(Value, frozen=True):
    """Who this object belongs to; it goes when its owners go."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Value, frozen=True):
    """Name, identity, labels and life of an object."""

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


class Condition(Value, frozen=True):
    """One observed aspect of an object, in the form all Kubernetes conditions have."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Timestamp | None = None
    reason: str = ""
    message: str = ""


def always(value: str | int) -> Any:
    """A default that is written out even when it was not given, as Go does without `omitempty`."""
    return msgspec.field(default_factory=lambda: value)
