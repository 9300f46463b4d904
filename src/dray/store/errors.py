"""What can go wrong with a store, as one tree of exceptions.

    StoreError                 anything a store raises on purpose
    ├── Compacted              the revision asked for is no longer kept: read the present, watch from there
    ├── FutureRevision         the revision asked for has not happened yet
    ├── SlowWatcher            a reader fell too far behind and was cut off; it may resume where it was
    ├── TooLarge               more in one transaction than the back end takes
    ├── Closed                 the store was closed, or stopped because its disk cannot be trusted
    ├── WriteFailed            the disk is full or refused; nothing was written, reads go on
    ├── OutcomeUnknown         a write was sent and nobody knows whether it happened
    └── OpenError              the store cannot be opened
        ├── InUse              another process has it
        ├── ForeignFile        the file belongs to another program
        ├── FormatError        the file was written by a newer dray
        ├── Damaged            the file is not what was written to it (also while reading)
        └── Unreachable        nobody answers at the address (also later, while running)

A compare that fails is none of these: it is a `Conflict`, a value.
"""

from __future__ import annotations

from dray.errors import DrayError


class StoreError(DrayError):
    """Base of everything a store raises on purpose."""


class CompactedError(StoreError):
    """The revision asked for is no longer kept."""

    def __init__(self, revision: int, oldest: int | None = None) -> None:
        self.revision = revision
        self.oldest = oldest
        kept = "" if oldest is None else f"; the oldest kept is `{oldest}`"
        super().__init__(
            f"revision `{revision}` has been compacted{kept}; read the present and watch from there"
        )


class FutureRevisionError(StoreError):
    """The revision asked for has not happened yet."""

    def __init__(self, revision: int, current: int | None = None) -> None:
        self.revision = revision
        self.current = current
        now = "" if current is None else f"; the store is at `{current}`"
        super().__init__(f"revision `{revision}` has not happened yet{now}")


class SlowWatcherError(StoreError):
    """A reader fell too far behind; everything up to `revision` was handed to it."""

    def __init__(self, revision: int, limit: int, unit: str = "events") -> None:
        self.revision = revision
        self.limit = limit
        super().__init__(
            f"the watcher fell more than {limit} {unit} behind and was cut off; resume after `{revision}`"
        )


class TxnTooLargeError(StoreError):
    """More in one transaction than the back end takes."""


class StoreClosedError(StoreError):
    """The store was closed, or stopped because its disk cannot be trusted any more."""


class StoreWriteError(StoreError):
    """The disk is full or refused; nothing was written, reads go on, and the next write may work."""


class OutcomeUnknownError(StoreError):
    """A write was sent and nobody knows whether it happened; read before trying again."""


class StoreOpenError(StoreError):
    """The store cannot be opened; the message says what to do."""


class StoreInUseError(StoreOpenError):
    """Another process has the file open."""


class ForeignFileError(StoreOpenError):
    """The file belongs to another program; it was not touched."""


class StoreFormatError(StoreOpenError):
    """The file was written by a newer dray."""


class CorruptStoreError(StoreOpenError):
    """The file is not what was written to it; nothing of it is served."""


class StoreUnreachableError(StoreOpenError):
    """Nobody answers at the address."""
