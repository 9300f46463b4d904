"""The change of one object, and the protocol of the admission rules that review it.

Theory of operation: a write becomes an `ObjectChange`: the stored object and the object to be stored. The
registry calls every rule in whose scope it is (`rule_table`) in turn. A rule that refuses raises an
`ApiStatusError`. A rule that keeps other data consistent with the object (the ledger, a quota) returns
compares and writes, which go into the same transaction; when one of those compares fails, the rules are
called again with the current state. So a rule may read the cache freely, as long as it returns a compare for
everything it relied on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    """One object before and after the change.

    `operation` is the operation in the store, whatever the verb: a patch may create, and an update may delete
    (when it removes the last finalizer). `pending` is the new object in the internal version; it is None for
    a delete, and so are `document` and `view`.
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
        """The new object as plain values."""
        return None if self.pending is None else self.pending.document

    @property
    def view(self) -> Any:
        """The new object as the struct of its kind."""
        return None if self.pending is None else self.pending.view

    @property
    def subresource(self) -> str:
        return self.request.call.subresource

    @cached_property
    def old_view(self) -> Any:
        """The stored object as the struct of its kind; None for a create."""
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


class RuleScope(msgspec.Struct, frozen=True):
    """Changes that a rule reviews."""

    kinds: Collection[Kind]
    operations: Collection[str] = (CREATE, UPDATE, DELETE)
    verbs: Collection[str] | None = None
    """The verbs of the requests; None for all."""
    subresources: Collection[str] | None = None
    """The subresources of the requests, `""` for the object itself; None for all."""

    def includes(self, kind: Kind, operation: str, verb: str, subresource: str) -> bool:
        """Return whether changes of this sort are in the scope."""
        return (
            kind in self.kinds
            and operation in self.operations
            and (self.verbs is None or verb in self.verbs)
            and (self.subresources is None or subresource in self.subresources)
        )


class AdmissionRule(Protocol):
    """Reviews changes: raises an `ApiStatusError`, or returns what the transaction must contain as well."""

    @property
    def scopes(self) -> Sequence[RuleScope]:
        """Which changes it reviews: it is called for no other kind, and would admit any other change of its
        kinds as it is.
        """
        ...

    def admit(self, change: ObjectChange) -> AdmissionEffects: ...
