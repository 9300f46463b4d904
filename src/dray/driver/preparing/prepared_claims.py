"""The book of prepared claims: checkpoint and CDI file as one unit that survives a crash at any moment.

Theory of operation: every claim has a file of its own, so damage reaches one claim and two processes of a
driver (a rolling update) see each other's work. The order of writes makes every state readable:

    prepare      "preparing"  -> devices are set up -> CDI file -> "prepared" with the reply
    give back    "unpreparing" -> devices are taken down -> no CDI file -> note "returned" -> no entry

What says "prepared" in this boot of the machine is whole, and its reply is given again as it was. Anything
else is begun anew: authors are told that both works may have been done in part. After a reboot nothing that
was set up is there any more, so what another boot prepared counts as begun only. Hence a loss of power, which
is a reboot, may undo everything but that work was begun, and that it was undone: only these two writes are
made durable before anything else is done.

A device that a claim holds, in whatever stage, is refused to every other claim; shares of a device are told
apart by their ids, and access for administrators holds nothing. The note "returned" stays for a while: a call
to prepare that comes late, after the claim was given back, must not bring it back to life.

Rules for this file: nothing here waits or asks the API. `fail_point` is told each place where a crash would
matter, so that tests can crash there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dray.driver.base import Ready
from dray.driver.preparing.cdi_files import ClaimCdiFiles, compute_digest, sanitize_uid
from dray.driver.preparing.claim_conversion import PrepareRefusedError
from dray.driver.preparing.claim_locks import ClaimLocks
from dray.driver.preparing.prepared_records import (
    ClaimDeviceRecord,
    PreparedClaimRecord,
    PreparedDeviceRecord,
    PreparedRecordStage,
    UnpreparedClaimRecord,
)
from dray.durable import (
    CorruptFileError,
    Durability,
    FileLock,
    StateFile,
    UnsupportedVersionError,
    remove_file,
)
from dray.wire.unix_sockets import secure_socket_directory

_RECORD_FILE: Final = StateFile("dray driver claim", 1)
_UNPREPARED_FILE: Final = StateFile("dray driver claim given back", 1)

UNPREPARED_RETENTION_SECONDS: Final = 24 * 3600.0
"""For how long a claim that was given back is remembered, in the same boot."""
MAX_UNPREPARED_RECORDS: Final = 4096
PRUNE_EVERY_CLAIMS: Final = 256
"""How many claims are given back between two looks at what need not be remembered any more."""
LATE_CALL_SECONDS: Final = 10.0
"""For how long a call may be under way that was made before a claim was given back.

Processes of a driver look every tenth of a second whether it is their turn, and agents do not wait for ever.
"""

FailPoint = Callable[[str], None]


def ignore_fail_point(_name: str) -> None:
    return None


class FailPoints:
    """Where a crash would matter, by the names that `fail_point` is told."""

    BEFORE_WORK = "prepare: before work"
    AFTER_CHECKPOINT = "prepare: after checkpoint"
    AFTER_SET_UP = "prepare: after device set-up"
    BEFORE_CDI = "prepare: before CDI file"
    AFTER_CDI = "prepare: after CDI file"
    BEFORE_SECOND = "prepare: before second checkpoint"
    BEFORE_REPLY = "prepare: before reply"
    UNPREPARE_BEFORE_WORK = "unprepare: before work"
    UNPREPARE_AFTER_CHECKPOINT = "unprepare: after checkpoint"
    UNPREPARE_AFTER_TAKE_DOWN = "unprepare: after device take-down"
    UNPREPARE_AFTER_CDI = "unprepare: after CDI file"
    UNPREPARE_BEFORE_SECOND = "unprepare: before second checkpoint"
    UNPREPARE_BEFORE_REPLY = "unprepare: before reply"


FAIL_POINTS: Final = tuple(value for name, value in vars(FailPoints).items() if name.isupper())


class _CachedRecord(NamedTuple):
    """An entry as it was read, and by what its file is known again."""

    file_identity: tuple[int, int, int]
    record: PreparedClaimRecord


@dataclass(frozen=True, slots=True)
class StoreRepair:
    """Something that was found wrong in the book, and what was done about it."""

    path: Path
    what: str


class PreparedClaimStore:
    """What this driver has prepared on this node."""

    def __init__(
        self,
        directory: Path,
        cdi_files: ClaimCdiFiles,
        boot_id: str,
        fail_point: FailPoint = ignore_fail_point,
    ) -> None:
        self._records_dir = directory / "prepared"
        self._unprepared_dir = directory / "returned"
        self._damaged_dir = directory / "damaged"
        self._lock_path = directory / "lock"
        self._cdi_files = cdi_files
        self._boot_id = boot_id
        self.fail_point = fail_point
        self._cache: dict[str, _CachedRecord] = {}
        self._unprepared_count = 0
        for each in (directory, self._records_dir, self._unprepared_dir, self._damaged_dir):
            secure_socket_directory(each)
        self.claim_locks = ClaimLocks(directory / "turns")

    # --- reading ---

    def list_records(self) -> Mapping[str, PreparedClaimRecord]:
        """All entries, by uid."""
        found: dict[str, _CachedRecord] = {}
        with os.scandir(self._records_dir) as files:
            for file in files:
                if file.name.startswith(".") or not file.name.endswith(".json"):
                    continue
                seen = self._read_record(Path(file.path))
                if seen is not None:
                    found[file.name] = seen
        self._cache = found
        return {seen.record.uid: seen.record for seen in found.values()}

    def get_record(self, uid: str) -> PreparedClaimRecord | None:
        """What is known of a claim."""
        seen = self._read_record(self._get_record_path(uid))
        return None if seen is None else seen.record

    def get_record_and_state(self, uid: str) -> tuple[PreparedClaimRecord | None, bool]:
        """What is known of a claim, and whether it is prepared."""
        entry = self.get_record(uid)
        return entry, entry is not None and self.is_prepared(entry)

    def is_prepared(self, record: PreparedClaimRecord) -> bool:
        """Whether a claim is prepared, in this boot of the machine, and its CDI file is as it was written."""
        if record.stage is not PreparedRecordStage.PREPARED or record.boot_id != self._boot_id:
            return False
        return self._cdi_files.is_intact(record.uid, record.file)

    def is_late_call(self, uid: str, consumers: Sequence[str], now: float) -> bool:
        """Whether a call to prepare a claim was made before the claim was given back.

        It was if nobody has the claim reserved any more, and not if somebody came since. When those have it
        reserved who had it before, one of them may need it (again): then only time tells.
        """
        told = self._read_unprepared(uid)
        if told is None or told.boot_id != self._boot_id:
            return False
        if not consumers:
            return True
        return set(consumers) <= set(told.consumers) and abs(now - told.at) <= LATE_CALL_SECONDS

    # --- prepare ---

    def begin_prepare(
        self, record: PreparedClaimRecord, now: float, *, reserved_by_pods: bool = True
    ) -> None:
        """Write down that work on a claim begins; `PrepareRefusedError` when another claim holds one of its
        devices.

        Also when it comes too late; whether that is so can be told of claims that are reserved by pods.
        """
        self.fail_point(FailPoints.BEFORE_WORK)
        if reserved_by_pods and self.is_late_call(record.uid, record.consumers, now):
            raise PrepareRefusedError(_explain_late_call(record))
        with self._lock_exclusively():
            self._check_devices_free(record)
            self._write_record(record, Durability.POWER_LOSS)
        remove_file(self._get_unprepared_path(record.uid), Durability.THIS_BOOT)
        self.fail_point(FailPoints.AFTER_CHECKPOINT)

    def finish_prepare(
        self,
        record: PreparedClaimRecord,
        ready: Sequence[Ready],
        statuses: Sequence[Mapping[str, object] | None],
    ) -> PreparedClaimRecord:
        """Write the CDI file and then that the claim is prepared; the entry with its reply."""
        self.fail_point(FailPoints.AFTER_SET_UP)
        content = self._cdi_files.render_spec(record.uid, ready)
        answers = tuple(
            _build_device_record(each, names, status)
            for each, names, status in zip(
                ready, self._cdi_files.build_device_names(record.uid, ready), statuses, strict=True
            )
        )
        self.fail_point(FailPoints.BEFORE_CDI)
        self._cdi_files.write(record.uid, content)
        self.fail_point(FailPoints.AFTER_CDI)
        whole = msgspec.structs.replace(
            record,
            stage=PreparedRecordStage.PREPARED,
            answers=answers,
            boot_id=self._boot_id,
            file=compute_digest(content),
        )
        self.fail_point(FailPoints.BEFORE_SECOND)
        self._write_record(whole, Durability.ATOMIC)
        self.fail_point(FailPoints.BEFORE_REPLY)
        return whole

    # --- give back ---

    def begin_unprepare(self, record: PreparedClaimRecord) -> PreparedClaimRecord:
        """Write down that a claim is being given back."""
        self.fail_point(FailPoints.UNPREPARE_BEFORE_WORK)
        going = msgspec.structs.replace(record, stage=PreparedRecordStage.UNPREPARING)
        if going != record:
            self._write_record(going, Durability.ATOMIC)
        self.fail_point(FailPoints.UNPREPARE_AFTER_CHECKPOINT)
        return going

    def finish_unprepare(self, record: PreparedClaimRecord, consumers: Sequence[str], now: float) -> None:
        """A claim was given back: no CDI file, a note, no entry."""
        self.fail_point(FailPoints.UNPREPARE_AFTER_TAKE_DOWN)
        self._cdi_files.remove(record.uid)
        self.fail_point(FailPoints.UNPREPARE_AFTER_CDI)
        everyone = tuple(dict.fromkeys([*record.consumers, *consumers]))
        note = UnpreparedClaimRecord(uid=record.uid, boot_id=self._boot_id, consumers=everyone, at=now)
        _UNPREPARED_FILE.write(self._get_unprepared_path(record.uid), note, Durability.THIS_BOOT)
        self.fail_point(FailPoints.UNPREPARE_BEFORE_SECOND)
        remove_file(self._get_record_path(record.uid))
        self._cache.pop(self._get_record_path(record.uid).name, None)
        self._unprepared_count += 1
        if self._unprepared_count % PRUNE_EVERY_CLAIMS == 0:
            self._prune_unprepared(now)
        self.fail_point(FailPoints.UNPREPARE_BEFORE_REPLY)

    # --- at the start ---

    def recover(self, now: float) -> tuple[StoreRepair, ...]:
        """Bring the book in order after whatever happened before: what was wrong, and what was done.

        A damaged entry is set aside and counts as begun: the next call sets it right or takes it down.
        """
        with self._lock_exclusively():
            told = [*self._set_aside_damaged()]
            entries = self.list_records()
            owned = {entry.uid for entry in entries.values() if self._may_keep_cdi_file(entry)}
            for path in self._cdi_files.find_stray_files(owned):
                remove_file(path)
                told.append(StoreRepair(path, "no prepared claim has this CDI file: removed"))
            self._prune_unprepared(now)
        self.claim_locks.remove_stale()
        return tuple(told)

    def _may_keep_cdi_file(self, record: PreparedClaimRecord) -> bool:
        """Whether the CDI file of a claim may stay; one of another boot speaks of devices that are gone."""
        return record.boot_id in (self._boot_id, "")

    def _set_aside_damaged(self) -> Iterator[StoreRepair]:
        for path in sorted(self._records_dir.iterdir()):
            if path.name.startswith("."):
                remove_file(path)  # a write that never ended
                continue
            try:
                self._decode_record(path)
            except (CorruptFileError, UnsupportedVersionError) as broken:
                path.replace(self._damaged_dir / path.name)
                uid = path.name.removesuffix(".json")
                _RECORD_FILE.write(path, PreparedClaimRecord(uid=uid, stage=PreparedRecordStage.PREPARING))
                yield StoreRepair(
                    path, f"{broken}; set aside in `{self._damaged_dir}`, the claim counts as begun"
                )

    def _prune_unprepared(self, now: float) -> None:
        notes = []
        for path in self._unprepared_dir.iterdir():
            note = self._read_unprepared_file(path)
            if note is None or note.boot_id != self._boot_id or now - note.at > UNPREPARED_RETENTION_SECONDS:
                path.unlink(missing_ok=True)
            else:
                notes.append((note.at, path))
        for _, path in sorted(notes)[:-MAX_UNPREPARED_RECORDS]:
            path.unlink(missing_ok=True)

    # --- who holds what ---

    def _check_devices_free(self, record: PreparedClaimRecord) -> None:
        for other in self.list_records().values():
            if other.uid == record.uid:
                continue
            for mine in record.devices:
                for theirs in other.devices:
                    if _is_conflict(mine, theirs):
                        share = f" share `{mine.share_id}`" if mine.share_id == theirs.share_id != "" else ""
                        raise PrepareRefusedError(
                            f"device `{mine.device}` of pool `{mine.pool}`{share} is held by claim "
                            f"`{other.label}` (uid {other.uid}), which is {other.stage} here; it must be "
                            "given back first"
                        )

    # --- files ---

    def _get_record_path(self, uid: str) -> Path:
        return self._records_dir / f"{sanitize_uid(uid)}.json"

    def _get_unprepared_path(self, uid: str) -> Path:
        return self._unprepared_dir / f"{sanitize_uid(uid)}.json"

    def _write_record(self, record: PreparedClaimRecord, lasts: Durability) -> None:
        _RECORD_FILE.write(self._get_record_path(record.uid), record, lasts)

    def _read_record(self, path: Path) -> _CachedRecord | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        seen = self._cache.get(path.name)
        if seen is not None and seen.file_identity == mark:
            return seen
        entry = self._decode_record(path)
        if entry is None:
            return None
        seen = self._cache[path.name] = _CachedRecord(mark, entry)
        return seen

    def _decode_record(self, path: Path) -> PreparedClaimRecord | None:
        found = _RECORD_FILE.read(path)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[1], type=PreparedClaimRecord)
        except msgspec.DecodeError as broken:
            raise CorruptFileError(f"`{path}` is no entry of a claim: {broken}") from None

    def _read_unprepared(self, uid: str) -> UnpreparedClaimRecord | None:
        return self._read_unprepared_file(self._get_unprepared_path(uid))

    def _read_unprepared_file(self, path: Path) -> UnpreparedClaimRecord | None:
        try:
            found = _UNPREPARED_FILE.read(path)
            return None if found is None else msgspec.json.decode(found[1], type=UnpreparedClaimRecord)
        except (CorruptFileError, UnsupportedVersionError, msgspec.DecodeError):
            return None  # at worst a late call is not recognised; nothing is lost

    @contextmanager
    def _lock_exclusively(self) -> Iterator[None]:
        """While nobody else, in this process or another, begins a claim."""
        with FileLock.acquire(self._lock_path):
            yield


def _explain_late_call(record: PreparedClaimRecord) -> str:
    why = "it was given back, and nobody else has it reserved since: this call comes too late"
    if not record.consumers:
        return why
    return f"{why}; whoever still needs it gets it {LATE_CALL_SECONDS:.0f} seconds after it was given back"


def _build_device_record(
    ready: Ready, names: tuple[str, ...], status: Mapping[str, object] | None
) -> PreparedDeviceRecord:
    told = None if status is None else dict(status)
    got = ready.got
    if got is None:
        return PreparedDeviceRecord(cdi=names, status=told)
    return PreparedDeviceRecord(
        request=got.request,
        pool=got.pool,
        device=got.device,
        share_id=got.share_id,
        cdi=names,
        status=told,
    )


def _is_conflict(mine: ClaimDeviceRecord, theirs: ClaimDeviceRecord) -> bool:
    if (mine.pool, mine.device) != (theirs.pool, theirs.device) or mine.admin or theirs.admin:
        return False
    return mine.share_id == theirs.share_id or not mine.share_id or not theirs.share_id
