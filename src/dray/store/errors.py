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


class Compacted(StoreError):  # noqa: N818 - the word of the protocol
    """The revision asked for is no longer kept."""

    def __init__(self, revision: int, oldest: int | None = None) -> None:
        self.revision = revision
        self.oldest = oldest
        kept = "" if oldest is None else f"; the oldest kept is `{oldest}`"
        super().__init__(
            f"revision `{revision}` has been compacted{kept}; read the present and watch from there"
        )


class FutureRevision(StoreError):  # noqa: N818 - the word of the protocol
    """The revision asked for has not happened yet."""

    def __init__(self, revision: int, current: int | None = None) -> None:
        self.revision = revision
        self.current = current
        now = "" if current is None else f"; the store is at `{current}`"
        super().__init__(f"revision `{revision}` has not happened yet{now}")


class SlowWatcher(StoreError):  # noqa: N818 - names the one who was cut off
    """A reader fell too far behind; everything up to `revision` was handed to it."""

    def __init__(self, revision: int, limit: int, unit: str = "events") -> None:
        self.revision = revision
        self.limit = limit
        super().__init__(
            f"the watcher fell more than {limit} {unit} behind and was cut off; resume after `{revision}`"
        )


class TooLarge(StoreError):  # noqa: N818 - the word the server answers with
    """More in one transaction than the back end takes."""


class Closed(StoreError):  # noqa: N818 - a state, not a mistake
    """The store was closed, or stopped because its disk cannot be trusted any more."""


class WriteFailed(StoreError):  # noqa: N818 - what is the case
    """The disk is full or refused; nothing was written, reads go on, and the next write may work."""


class OutcomeUnknown(StoreError):  # noqa: N818 - what is the case
    """A write was sent and nobody knows whether it happened; read before trying again."""


class OpenError(StoreError):
    """The store cannot be opened; the message says what to do."""


class InUse(OpenError):  # noqa: N818 - a state, not a mistake
    """Another process has the file open."""


class ForeignFile(OpenError):  # noqa: N818 - says what was found
    """The file belongs to another program; it was not touched."""


class FormatError(OpenError):
    """The file was written by a newer dray."""


class Damaged(OpenError):  # noqa: N818 - says what was found
    """The file is not what was written to it; nothing of it is served."""


class Unreachable(OpenError):  # noqa: N818 - a state, not a mistake
    """Nobody answers at the address."""
