"""The store of prepared claims: a checkpoint and a CDI file per claim that survive a crash at any moment.

Theory of operation: every claim has a file of its own, so damage is limited to one claim and two processes of
a driver (a rolling update) see each other's records. The order of writes makes every state readable:

    prepare      "preparing"  -> devices are set up -> CDI file -> "prepared" with the reply
    unprepare    "unpreparing" -> devices are taken down -> no CDI file -> record "returned" -> no record

A record that says "prepared" in this boot of the machine is complete, and the driver repeats its reply. In
any other state the driver starts the call over: authors know that `prepare` and `unprepare` may have been
done in part. After a reboot no device is set up any more, so a claim that another boot prepared counts as
begun only. Hence a loss of power, which is a reboot, may undo every write except that work was begun and that
it was undone: only these two writes are durable before anything else is done.

The store refuses a device that a claim holds, at any stage, to every other claim; shares of a device have
ids of their own, and admin access holds nothing. The record "returned" stays for a while: a call to prepare
that arrives late, after the claim was unprepared, must not prepare it again.

Rules for this file: no function waits or calls the API. The store calls `fail_point` with the name of each
place where a crash would matter, so that tests can crash there.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dray.driver.base import Ready
from dray.driver.preparing.cdi_files import ClaimCdiFiles, compute_digest, sanitize_uid
from dray.driver.preparing.claim_conversion import PrepareDelayedError, PrepareRefusedError
from dray.driver.preparing.claim_locks import ClaimFileLocks
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
"""For how long the record of an unprepared claim is kept, in the same boot."""
MAX_UNPREPARED_RECORDS: Final = 4096
PRUNE_EVERY_CLAIMS: Final = 256
"""How many claims are unprepared between two removals of old records."""
LATE_CALL_SECONDS: Final = 10.0
"""For how long a call to prepare may be under way that was made before the claim was unprepared.

Processes of a driver poll the lock of a claim every tenth of a second, and agents limit their calls in time.
"""

FailPoint = Callable[[str], None]


def ignore_fail_point(_name: str) -> None:
    return None


class FailPoints:
    """The places where a crash would matter, by the names that `fail_point` is called with."""

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
    """A record as it was read, and the identity of its file at that time."""

    file_identity: tuple[int, int, int]
    record: PreparedClaimRecord


@dataclass(frozen=True, slots=True)
class StoreRepair:
    """Something that was wrong in the store, and what was done about it."""

    path: Path
    what: str


class PreparedClaimStore:
    """The claims that one driver has prepared on one node."""

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
        self.boot_id = boot_id
        self.fail_point = fail_point
        self._cache: dict[str, _CachedRecord] = {}
        self._unprepared_count = 0
        for each in (directory, self._records_dir, self._unprepared_dir, self._damaged_dir):
            secure_socket_directory(each)
        self.claim_locks = ClaimFileLocks(directory / "turns")

    # --- reading ---

    def list_records(self) -> Mapping[str, PreparedClaimRecord]:
        """Return all records by uid."""
        found: dict[str, _CachedRecord] = {}
        with os.scandir(self._records_dir) as files:
            for file in files:
                if file.name.startswith(".") or not file.name.endswith(".json"):
                    continue
                cached = self._read_record(Path(file.path))
                if cached is not None:
                    found[file.name] = cached
        self._cache = found
        return {cached.record.uid: cached.record for cached in found.values()}

    def get_record(self, uid: str) -> PreparedClaimRecord | None:
        """Return the record of a claim, None when there is none."""
        cached = self._read_record(self._get_record_path(uid))
        return None if cached is None else cached.record

    def get_record_and_state(self, uid: str) -> tuple[PreparedClaimRecord | None, bool]:
        """Return the record of a claim, and whether the claim is prepared."""
        record = self.get_record(uid)
        return record, record is not None and self.is_prepared(record)

    def is_prepared(self, record: PreparedClaimRecord) -> bool:
        """Whether a claim is prepared, in this boot of the machine, and its CDI file is as it was written."""
        if record.stage is not PreparedRecordStage.PREPARED or record.boot_id != self.boot_id:
            return False
        return self._cdi_files.is_intact(record.uid, record.file)

    def compute_late_seconds(self, uid: str, consumers: Sequence[str], now: float) -> float:
        """For how long a call to prepare a claim counts as one that was made before it was unprepared.

        For ever if nobody reserves the claim any more, and not at all if there is a new consumer. When only
        earlier consumers reserve it, one of them may need it again: then the time since decides.
        """
        unprepared = self._read_unprepared_file(self._get_unprepared_path(uid))
        if unprepared is None or unprepared.boot_id != self.boot_id:
            return 0.0
        if not consumers:
            return math.inf
        if not set(consumers) <= set(unprepared.consumers):
            return 0.0
        return max(0.0, LATE_CALL_SECONDS - abs(now - unprepared.at))

    # --- prepare ---

    def begin_prepare(
        self, record: PreparedClaimRecord, now: float, *, reserved_by_pods: bool = True
    ) -> None:
        """Record that work on a claim begins.

        Raises `PrepareDelayedError` when another claim holds one of its devices or the call may be late, and
        `PrepareRefusedError` when it is; only calls for claims that are reserved by pods can be late.
        """
        self.fail_point(FailPoints.BEFORE_WORK)
        if reserved_by_pods:
            _check_not_late(record, self.compute_late_seconds(record.uid, record.consumers, now))
        with FileLock.acquire(self._lock_path):
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
        """Write the CDI file, then the record that the claim is prepared, and return that record."""
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
        prepared = msgspec.structs.replace(
            record,
            stage=PreparedRecordStage.PREPARED,
            answers=answers,
            boot_id=self.boot_id,
            file=compute_digest(content),
        )
        self.fail_point(FailPoints.BEFORE_SECOND)
        self._write_record(prepared, Durability.ATOMIC)
        self.fail_point(FailPoints.BEFORE_REPLY)
        return prepared

    # --- unprepare ---

    def begin_unprepare(self, record: PreparedClaimRecord) -> PreparedClaimRecord:
        """Record that a claim is being unprepared."""
        self.fail_point(FailPoints.UNPREPARE_BEFORE_WORK)
        begun = msgspec.structs.replace(record, stage=PreparedRecordStage.UNPREPARING)
        if begun != record:
            self._write_record(begun, Durability.ATOMIC)
        self.fail_point(FailPoints.UNPREPARE_AFTER_CHECKPOINT)
        return begun

    def finish_unprepare(self, record: PreparedClaimRecord, consumers: Sequence[str], now: float) -> None:
        """Remove the CDI file, record that the claim was unprepared, and remove the claim's record."""
        self.fail_point(FailPoints.UNPREPARE_AFTER_TAKE_DOWN)
        self._cdi_files.remove(record.uid)
        self.fail_point(FailPoints.UNPREPARE_AFTER_CDI)
        all_consumers = tuple(dict.fromkeys([*record.consumers, *consumers]))
        unprepared = UnpreparedClaimRecord(
            uid=record.uid, boot_id=self.boot_id, consumers=all_consumers, at=now
        )
        _UNPREPARED_FILE.write(self._get_unprepared_path(record.uid), unprepared, Durability.THIS_BOOT)
        self.fail_point(FailPoints.UNPREPARE_BEFORE_SECOND)
        remove_file(self._get_record_path(record.uid))
        self._cache.pop(self._get_record_path(record.uid).name, None)
        self._unprepared_count += 1
        if self._unprepared_count % PRUNE_EVERY_CLAIMS == 0:
            self._prune_unprepared(now)
        self.fail_point(FailPoints.UNPREPARE_BEFORE_REPLY)

    # --- at the start ---

    def recover(self, now: float) -> tuple[StoreRepair, ...]:
        """Repair the store after a crash, and return what was repaired.

        A damaged record is set aside and its claim counts as begun: the next call prepares or unprepares it.
        """
        with FileLock.acquire(self._lock_path):
            repairs = [*self._set_aside_damaged()]
            records = self.list_records()
            owned = {record.uid for record in records.values() if self._may_keep_cdi_file(record)}
            for path in self._cdi_files.find_stray_files(owned):
                remove_file(path)
                repairs.append(StoreRepair(path, "no prepared claim has this CDI file: removed"))
            self._prune_unprepared(now)
        self.claim_locks.remove_stale()
        return tuple(repairs)

    def _may_keep_cdi_file(self, record: PreparedClaimRecord) -> bool:
        """Whether the CDI file of a claim may stay; one of another boot describes devices that are gone."""
        return record.boot_id in (self.boot_id, "")

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
        kept = []
        for path in self._unprepared_dir.iterdir():
            record = self._read_unprepared_file(path)
            current = record is not None and record.boot_id == self.boot_id
            if record is None or not current or now - record.at > UNPREPARED_RETENTION_SECONDS:
                path.unlink(missing_ok=True)
            else:
                kept.append((record.at, path))
        for _, path in sorted(kept)[:-MAX_UNPREPARED_RECORDS]:
            path.unlink(missing_ok=True)

    # --- held devices ---

    def _check_devices_free(self, record: PreparedClaimRecord) -> None:
        for other in self.list_records().values():
            if other.uid == record.uid:
                continue
            for wanted, held in product(record.devices, other.devices):
                if _is_conflict(wanted, held):
                    share = f" share `{wanted.share_id}`" if wanted.share_id == held.share_id != "" else ""
                    raise PrepareDelayedError(
                        f"device `{wanted.device}` of pool `{wanted.pool}`{share} is held by claim "
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
        identity = (found.st_ino, found.st_mtime_ns, found.st_size)
        cached = self._cache.get(path.name)
        if cached is not None and cached.file_identity == identity:
            return cached
        record = self._decode_record(path)
        if record is None:
            return None
        cached = self._cache[path.name] = _CachedRecord(identity, record)
        return cached

    def _decode_record(self, path: Path) -> PreparedClaimRecord | None:
        found = _RECORD_FILE.read(path)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[1], type=PreparedClaimRecord)
        except msgspec.DecodeError as broken:
            raise CorruptFileError(f"`{path}` is no record of a prepared claim: {broken}") from None

    def _read_unprepared_file(self, path: Path) -> UnpreparedClaimRecord | None:
        try:
            found = _UNPREPARED_FILE.read(path)
            return None if found is None else msgspec.json.decode(found[1], type=UnpreparedClaimRecord)
        except (CorruptFileError, UnsupportedVersionError, msgspec.DecodeError):
            return None  # at worst a late call is not recognised


def _check_not_late(record: PreparedClaimRecord, late_seconds: float) -> None:
    if not late_seconds:
        return
    why = "it was given back, and nobody else has it reserved since: this call comes too late"
    if not record.consumers:
        raise PrepareRefusedError(why)
    raise PrepareDelayedError(
        f"{why}; whoever still needs it gets it {LATE_CALL_SECONDS:.0f} seconds after it was given back",
        min_wait_seconds=late_seconds,
    )


def _build_device_record(
    ready: Ready, names: tuple[str, ...], status: Mapping[str, object] | None
) -> PreparedDeviceRecord:
    document = None if status is None else dict(status)
    got = ready.got
    if got is None:
        return PreparedDeviceRecord(cdi=names, status=document)
    return PreparedDeviceRecord(
        request=got.request,
        pool=got.pool,
        device=got.device,
        share_id=got.share_id,
        cdi=names,
        status=document,
    )


def _is_conflict(requested: ClaimDeviceRecord, held: ClaimDeviceRecord) -> bool:
    if (requested.pool, requested.device) != (held.pool, held.device) or requested.admin or held.admin:
        return False
    return requested.share_id == held.share_id or not requested.share_id or not held.share_id
