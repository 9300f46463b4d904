"""Indexes of objects by the value of a field: the pods of a node are listed without a walk over all pods.

Theory of operation: an index is built from the objects of its kind when somebody selects by its field for the
first time, and kept up to date from then on. It is a selection of keys, so it may be used only where the
selector is applied, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dray.server.objects.stored_object import StoredObject
from dray.store import StoreEntry

INDEXED_FIELDS: Final = frozenset({"spec.nodeName"})
"""The fields with an index: each has a few objects per value, and every node selects by it."""

LABELS: Final = "metadata.labels"
"""The field whose values are the labels of an object, each as `key=value`."""

FieldReader = Callable[[str, bytes, bytes], str]
"""Reads the value of a field from the key and the value of an object."""


class FieldIndex:
    """The keys of the objects of one kind by the value of one field."""

    def __init__(self, field: str, read_field: FieldReader, objects: Iterable[StoredObject]) -> None:
        self.field = field
        self._read_field = read_field
        self._keys_by_value: dict[str, set[bytes]] = {}
        for stored in objects:
            self.replace(None, stored)

    def replace(self, old: StoredObject | None, new: StoredObject | None) -> None:
        """Take over a change of an object."""
        before = None if old is None else self._read_field(self.field, old.key, old.value)
        now = None if new is None else self._read_field(self.field, new.key, new.value)
        if before == now:
            return
        if old is not None and before is not None:
            keys = self._keys_by_value[before]
            keys.discard(old.key)
            if not keys:
                del self._keys_by_value[before]
        if new is not None and now is not None:
            self._keys_by_value.setdefault(now, set()).add(new.key)

    def list_keys(self, value: str, prefix: bytes) -> list[bytes]:
        """The keys under a prefix of the objects with a value, in order."""
        return sorted(key for key in self._keys_by_value.get(value, ()) if key.startswith(prefix))

    def __len__(self) -> int:
        """The number of different values."""
        return len(self._keys_by_value)


def list_values(field: str, entry: StoreEntry, read_field: FieldReader) -> list[str]:
    """The values of a field by which watchers of an object are found."""
    if field == LABELS:
        labels = StoredObject.from_entry(entry).metadata.labels
        return [f"{name}={value}" for name, value in labels.items()]
    return [read_field(field, entry.key, entry.value)]
