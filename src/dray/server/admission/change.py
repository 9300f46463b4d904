"""A change that is about to be stored: what rules judge, and what they may add to its transaction.

Theory of operation: a write becomes a `ObjectChange`: the object as it is stored and as it would be. Every
rule is asked in turn. A rule that objects raises a `Failure`. A rule that must keep something else in step
(the ledger, a quota) returns compares and writes, which go into the same transaction; when one of those
compares fails, everything is judged again on what stands in the store then. So rules read the cache freely:
whatever they relied on, they name in a compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec

from dray.api.kinds import Kind
from dray.server.http.requests import ApiRequest
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import StoredObject
from dray.store import Compare, Write

CREATE, UPDATE, DELETE = "create", "update", "delete"


class ObjectChange(msgspec.Struct, frozen=True, dict=True):
    """One object, before and after.

    `operation` is what happens in the store, whatever the verb: a patch may create, an update may delete
    (when the last finalizer goes). `pending` is the object as it would be, in the internal version; None when
    it is deleted, and so are `document` and `view`, which are read from it.
    """

    request: ApiRequest
    operation: str
    kind: Kind
    namespace: str
    name: str
    old: StoredObject | None
    pending: PendingObject | None

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The object as it would be, as plain values."""
        return None if self.pending is None else self.pending.document

    @property
    def view(self) -> Any:
        """The object as it would be, as its struct."""
        return None if self.pending is None else self.pending.view

    @property
    def subresource(self) -> str:
        return self.request.call.subresource

    @cached_property
    def old_view(self) -> Any:
        """The stored object as its struct; None when it is created."""
        return None if self.old is None else self.old.view

    @cached_property
    def old_document(self) -> dict[str, Any] | None:
        return None if self.old is None else self.old.document


class AdmissionEffects(msgspec.Struct, frozen=True):
    """What a rule adds to the transaction."""

    compares: Sequence[Compare] = ()
    writes: Sequence[Write] = ()
    warnings: Sequence[str] = ()


ADMITTED = AdmissionEffects()


class AdmissionRule(Protocol):
    """Judges changes; raises a `Failure`, or returns what else must change with it."""

    def admit(self, change: ObjectChange) -> AdmissionEffects: ...
