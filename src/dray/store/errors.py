"""Exceptions of the stores, as one tree.

    StoreError                     any exception a store raises on purpose
    ├── CompactedError             the requested revision has been compacted; read the present
    ├── FutureRevisionError        the requested revision does not exist yet
    ├── SlowWatcherError           a watcher fell too far behind and was cut off; it may resume where it was
    ├── TxnTooLargeError           the transaction has more operations than the back end accepts
    ├── StoreClosedError           the store was closed, or stopped because its disk cannot be trusted
    ├── StoreWriteError            the disk is full or refused the write; nothing was written, reads go on
    ├── RecordNotWrittenError      the log that must have a line first cannot take it; nothing was written
    ├── OutcomeUnknownError        a write was sent and its outcome is unknown
    └── StoreOpenError             the store cannot be opened
        ├── StoreInUseError        another process has the file open
        ├── ForeignFileError       the file belongs to another program
        ├── StoreFormatError       the file has the format of another dray
        ├── CorruptStoreError      the file is damaged (also raised while reading)
        └── StoreUnreachableError  no server answers at the address (also raised later, while running)

A compare that fails raises none of these: the transaction returns a `TxnConflict`.
"""

from __future__ import annotations

from dray.errors import DrayError


class StoreError(DrayError):
    """Base class of every exception that a store raises on purpose."""


class CompactedError(StoreError):
    """The requested revision has been compacted."""

    def __init__(self, revision: int, oldest: int | None = None) -> None:
        self.revision = revision
        self.oldest = oldest
        kept = "" if oldest is None else f"; the oldest kept is `{oldest}`"
        super().__init__(
            f"revision `{revision}` has been compacted{kept}; read the present and watch from there"
        )


class FutureRevisionError(StoreError):
    """The requested revision does not exist yet."""

    def __init__(self, revision: int, current: int | None = None) -> None:
        self.revision = revision
        self.current = current
        now = "" if current is None else f"; the store is at `{current}`"
        super().__init__(f"revision `{revision}` has not happened yet{now}")


class SlowWatcherError(StoreError):
    """A watcher fell too far behind; it has received everything up to `revision`."""

    def __init__(self, revision: int, limit: int, unit: str = "events") -> None:
        self.revision = revision
        self.limit = limit
        super().__init__(
            f"the watcher fell more than {limit} {unit} behind and was cut off; resume after `{revision}`"
        )


class TxnTooLargeError(StoreError):
    """The transaction has more operations than the back end accepts."""


class StoreClosedError(StoreError):
    """The store was closed, or stopped because its disk can no longer be trusted."""


class StoreWriteError(StoreError):
    """The disk is full or refused the write; nothing was written, reads go on, the next write may work."""


class RecordNotWrittenError(StoreError):
    """The log that must have a line before a transaction is committed cannot take it."""


class OutcomeUnknownError(StoreError):
    """A write was sent and its outcome is unknown; read before trying again."""


class StoreOpenError(StoreError):
    """The store cannot be opened; the message says what to do."""


class StoreInUseError(StoreOpenError):
    """Another process has the file open."""


class ForeignFileError(StoreOpenError):
    """The file belongs to another program; it was not touched."""


class StoreFormatError(StoreOpenError):
    """The file has the format of another dray; the message names the one to use, or the migration."""


class CorruptStoreError(StoreOpenError):
    """The file is damaged; the store serves nothing of it."""


class StoreUnreachableError(StoreOpenError):
    """No server answers at the address."""
