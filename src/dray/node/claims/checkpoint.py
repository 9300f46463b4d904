"""The checkpoint file of the agent's claims, written before any driver is called.

Theory of operation: the file is an append log (`dray.append_log`): a record, and the changes since. `store`
returns when a record at least as new as the one given is written. Callers that come during a write share the
next one, so a hundred pods that start together cost a few writes.

A write with `Durability.POWER_LOSS` is synced, and with it everything before. One with
`Durability.THIS_BOOT` survives the end of the agent, but maybe not of the machine. That is enough for the
outcome of a call: after a reboot nothing counts as prepared, and every call may be repeated.

What happens when the file cannot be used:

    absent            the node is new, or the file was deleted: the record is rebuilt from the `Preparation`s
                      of this node in the API and from the pods bound to it; everything those pods use is
                      prepared again, everything else is released
    foreign, wrong    the same; the file is renamed and kept for inspection
    checksum, no
    whole record,
    unsupported
    old version
    unfinished last   the change was being written when the machine lost power, and nothing was done that
    change            depends on it: it is cut off; if it was damaged later, see "an earlier copy"
    a later version   the agent does not start: a later program recorded more than this one can read, and
                      acting on less could release claims in use
    an earlier copy   cannot be detected from the file itself; claims that only the API knows are added,
                      claims that only the file knows are prepared again, and pods with running containers
                      use their claims whatever the file says

Rules for this file: bytes and file names only; the meaning of a record is in `plan`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from dray.append_log import AppendLog, LogContent
from dray.durable import CorruptFileError, Durability, StateFile, sync_directory
from dray.node.claims.record import ClaimsChange, ClaimsRecord, build_change

VERSION: Final = 2
FILE: Final = StateFile("dray node checkpoint", VERSION)

_READERS: Final[Mapping[int, Callable[[bytes], ClaimsRecord]]] = MappingProxyType(
    dict.fromkeys((1, 2), partial(msgspec.json.decode, type=ClaimsRecord))
)
"""Decoders of the record by version of the file; version 1 has no changes after it."""


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """No usable record was found."""

    why: str
    """Empty when there is no file."""


class Checkpoint:
    """The checkpoint file of one agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = AppendLog(path, FILE)
        self._latest = self._written = ClaimsRecord()
        self._requested = self._done = 0
        self._durability = Durability.THIS_BOOT
        """What callers that wait for the next write asked for."""
        self._writing: asyncio.Task[None] | None = None
        self.cut_bytes = 0
        """The length of an unfinished change that `load` left out."""

    def load(self) -> ClaimsRecord | LostCheckpoint:
        """Read the file; raises `dray.durable.UnsupportedVersionError` when a later program wrote it."""
        try:
            found = self._file.read()
            if found is None:
                return LostCheckpoint("")
            self.cut_bytes = found.cut_bytes
            return self._decode(found)
        except CorruptFileError as error:
            return LostCheckpoint(f"{error}; it is kept as `{self._set_aside()}`")

    def _decode(self, found: LogContent) -> ClaimsRecord:
        reader = _READERS.get(found.version)
        if reader is None:
            raise CorruptFileError(
                f"`{self._path}` has version {found.version}, which this program does not support any more"
            )
        try:
            record = reader(found.base)
            for change in found.changes:
                record = msgspec.json.decode(change, type=ClaimsChange).apply(record)
        except msgspec.DecodeError as error:
            raise CorruptFileError(f"`{self._path}` holds no record: {error}") from None
        return record

    def _set_aside(self) -> Path:
        number = 1
        while (kept := self._path.with_name(f"{self._path.name}.damaged-{number}")).exists():
            number += 1
        self._path.rename(kept)
        sync_directory(kept.parent)
        return kept

    async def store(self, record: ClaimsRecord, durability: Durability = Durability.POWER_LOSS) -> None:
        """Write a record or a later one; raises `OSError` when that is not possible."""
        self._latest = record
        self._requested += 1
        number = self._requested
        if durability is not Durability.THIS_BOOT:
            self._durability = durability
        while self._done < number:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())
                self._writing.add_done_callback(_consume_exception)
            # A cancelled caller must not cancel the write: others wait for it too.
            await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Wait for a write in progress; the file is free afterwards."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        number, record, durability = self._requested, self._latest, self._durability
        self._durability = Durability.THIS_BOOT
        change = build_change(self._written, record)
        # After a failure the file is replaced, which is durable whatever was asked for.
        await asyncio.to_thread(self._file.write, change, record, durability)
        self._written, self._done = record, number


def _consume_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a write: callers get it, and when none waits any more it is no error."""
    if not task.cancelled():
        task.exception()
