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

Rules for this file: nothing here waits or asks the API. `passing` is told each place where a crash would
matter, so that tests can crash there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from dray.driver.base import Ready
from dray.driver.preparing.cdi_files import CdiFiles, digest_of, safe_name
from dray.driver.preparing.claim_conversion import Refused
from dray.driver.preparing.claim_locks import Turns
from dray.driver.preparing.prepared_records import Answer, Entry, KeptDevice, Returned, Stage
from dray.durable import Damaged, Lasts, Newer, StateFile, remove
from dray.wire.unix_sockets import claim_directory

_ENTRY: Final = StateFile("dray driver claim", 1)
_RETURNED: Final = StateFile("dray driver claim given back", 1)

REMEMBERED_SECONDS: Final = 24 * 3600.0
"""For how long a claim that was given back is remembered, in the same boot."""
MOST_REMEMBERED: Final = 4096
FORGETTING_EVERY: Final = 256
"""How many claims are given back between two looks at what need not be remembered any more."""
LATE_SECONDS: Final = 10.0
"""For how long a call may be under way that was made before a claim was given back.

Processes of a driver look every tenth of a second whether it is their turn, and agents do not wait for ever.
"""

Passing = Callable[[str], None]


def unwatched(_place: str) -> None:
    return None


class Places:
    """Where a crash would matter, by the names that `passing` is told."""

    BEFORE_WORK = "prepare: before work"
    AFTER_CHECKPOINT = "prepare: after checkpoint"
    AFTER_SET_UP = "prepare: after device set-up"
    BEFORE_CDI = "prepare: before CDI file"
    AFTER_CDI = "prepare: after CDI file"
    BEFORE_SECOND = "prepare: before second checkpoint"
    BEFORE_REPLY = "prepare: before reply"
    GIVE_BEFORE_WORK = "unprepare: before work"
    GIVE_AFTER_CHECKPOINT = "unprepare: after checkpoint"
    GIVE_AFTER_TAKE_DOWN = "unprepare: after device take-down"
    GIVE_AFTER_CDI = "unprepare: after CDI file"
    GIVE_BEFORE_SECOND = "unprepare: before second checkpoint"
    GIVE_BEFORE_REPLY = "unprepare: before reply"


PLACES: Final = tuple(value for name, value in vars(Places).items() if name.isupper())


class _Seen(NamedTuple):
    """An entry as it was read, and by what its file is known again."""

    mark: tuple[int, int, int]
    entry: Entry


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that was found wrong in the book, and what was done about it."""

    path: Path
    what: str


class Book:
    """What this driver has prepared on this node."""

    def __init__(self, directory: Path, files: CdiFiles, boot_id: str, passing: Passing = unwatched) -> None:
        self._entries = directory / "prepared"
        self._returned = directory / "returned"
        self._damaged = directory / "damaged"
        self._lock = directory / "lock"
        self._files = files
        self._boot_id = boot_id
        self.passing = passing
        self._seen: dict[str, _Seen] = {}
        self._given = 0
        for each in (directory, self._entries, self._returned, self._damaged):
            claim_directory(each)
        self.turns = Turns(directory / "turns")

    # --- reading ---

    def entries(self) -> Mapping[str, Entry]:
        """All entries, by uid."""
        found: dict[str, _Seen] = {}
        with os.scandir(self._entries) as files:
            for file in files:
                if file.name.startswith(".") or not file.name.endswith(".json"):
                    continue
                seen = self._read(Path(file.path))
                if seen is not None:
                    found[file.name] = seen
        self._seen = found
        return {seen.entry.uid: seen.entry for seen in found.values()}

    def entry(self, uid: str) -> Entry | None:
        """What is known of a claim."""
        seen = self._read(self._entry_path(uid))
        return None if seen is None else seen.entry

    def known(self, uid: str) -> tuple[Entry | None, bool]:
        """What is known of a claim, and whether it is prepared."""
        entry = self.entry(uid)
        return entry, entry is not None and self.is_whole(entry)

    def is_whole(self, entry: Entry) -> bool:
        """Whether a claim is prepared, in this boot of the machine, and its CDI file is as it was written."""
        if entry.stage is not Stage.PREPARED or entry.boot_id != self._boot_id:
            return False
        return self._files.is_there(entry.uid, entry.file)

    def late(self, uid: str, consumers: Sequence[str], now: float) -> bool:
        """Whether a call to prepare a claim was made before the claim was given back.

        It was if nobody has the claim reserved any more, and not if somebody came since. When those have it
        reserved who had it before, one of them may need it (again): then only time tells.
        """
        told = self._returned_note(uid)
        if told is None or told.boot_id != self._boot_id:
            return False
        if not consumers:
            return True
        return set(consumers) <= set(told.consumers) and abs(now - told.at) <= LATE_SECONDS

    # --- prepare ---

    def begin(self, entry: Entry, now: float, *, by_pods: bool = True) -> None:
        """Write down that work on a claim begins; `Refused` when another claim holds one of its devices.

        Also when it comes too late; whether that is so can be told of claims that are reserved by pods.
        """
        self.passing(Places.BEFORE_WORK)
        if by_pods and self.late(entry.uid, entry.consumers, now):
            raise Refused(_too_late(entry))
        with self._alone():
            self._refuse_held(entry)
            self._write(entry, Lasts.FOR_GOOD)
        remove(self._returned_path(entry.uid), Lasts.THIS_BOOT)
        self.passing(Places.AFTER_CHECKPOINT)

    def finish(
        self, entry: Entry, ready: Sequence[Ready], statuses: Sequence[Mapping[str, object] | None]
    ) -> Entry:
        """Write the CDI file and then that the claim is prepared; the entry with its reply."""
        self.passing(Places.AFTER_SET_UP)
        content = self._files.content(entry.uid, ready)
        answers = tuple(
            _answer(each, names, status)
            for each, names, status in zip(ready, self._files.names(entry.uid, ready), statuses, strict=True)
        )
        self.passing(Places.BEFORE_CDI)
        self._files.write(entry.uid, content)
        self.passing(Places.AFTER_CDI)
        whole = msgspec.structs.replace(
            entry, stage=Stage.PREPARED, answers=answers, boot_id=self._boot_id, file=digest_of(content)
        )
        self.passing(Places.BEFORE_SECOND)
        self._write(whole, Lasts.EITHER)
        self.passing(Places.BEFORE_REPLY)
        return whole

    # --- give back ---

    def giving(self, entry: Entry) -> Entry:
        """Write down that a claim is being given back."""
        self.passing(Places.GIVE_BEFORE_WORK)
        going = msgspec.structs.replace(entry, stage=Stage.UNPREPARING)
        if going != entry:
            self._write(going, Lasts.EITHER)
        self.passing(Places.GIVE_AFTER_CHECKPOINT)
        return going

    def given(self, entry: Entry, consumers: Sequence[str], now: float) -> None:
        """A claim was given back: no CDI file, a note, no entry."""
        self.passing(Places.GIVE_AFTER_TAKE_DOWN)
        self._files.remove(entry.uid)
        self.passing(Places.GIVE_AFTER_CDI)
        everyone = tuple(dict.fromkeys([*entry.consumers, *consumers]))
        note = Returned(uid=entry.uid, boot_id=self._boot_id, consumers=everyone, at=now)
        _RETURNED.write(self._returned_path(entry.uid), note, Lasts.THIS_BOOT)
        self.passing(Places.GIVE_BEFORE_SECOND)
        remove(self._entry_path(entry.uid))
        self._seen.pop(self._entry_path(entry.uid).name, None)
        self._given += 1
        if self._given % FORGETTING_EVERY == 0:
            self._forget(now)
        self.passing(Places.GIVE_BEFORE_REPLY)

    # --- at the start ---

    def awaken(self, now: float) -> tuple[Trouble, ...]:
        """Bring the book in order after whatever happened before: what was wrong, and what was done.

        A damaged entry is set aside and counts as begun: the next call sets it right or takes it down.
        """
        with self._alone():
            told = [*self._set_aside()]
            entries = self.entries()
            owned = {entry.uid for entry in entries.values() if self._has_file(entry)}
            for path in self._files.strays(owned):
                remove(path)
                told.append(Trouble(path, "no prepared claim has this CDI file: removed"))
            self._forget(now)
        self.turns.tidy()
        return tuple(told)

    def _has_file(self, entry: Entry) -> bool:
        """Whether the CDI file of a claim may stay; one of another boot speaks of devices that are gone."""
        return entry.boot_id in (self._boot_id, "")

    def _set_aside(self) -> Iterator[Trouble]:
        for path in sorted(self._entries.iterdir()):
            if path.name.startswith("."):
                remove(path)  # a write that never ended
                continue
            try:
                self._decoded(path)
            except (Damaged, Newer) as broken:
                path.replace(self._damaged / path.name)
                uid = path.name.removesuffix(".json")
                _ENTRY.write(path, Entry(uid=uid, stage=Stage.PREPARING))
                yield Trouble(path, f"{broken}; set aside in `{self._damaged}`, the claim counts as begun")

    def _forget(self, now: float) -> None:
        notes = []
        for path in self._returned.iterdir():
            note = self._note_at(path)
            if note is None or note.boot_id != self._boot_id or now - note.at > REMEMBERED_SECONDS:
                path.unlink(missing_ok=True)
            else:
                notes.append((note.at, path))
        for _, path in sorted(notes)[:-MOST_REMEMBERED]:
            path.unlink(missing_ok=True)

    # --- who holds what ---

    def _refuse_held(self, entry: Entry) -> None:
        for other in self.entries().values():
            if other.uid == entry.uid:
                continue
            for mine in entry.devices:
                for theirs in other.devices:
                    if _clash(mine, theirs):
                        share = f" share `{mine.share_id}`" if mine.share_id == theirs.share_id != "" else ""
                        raise Refused(
                            f"device `{mine.device}` of pool `{mine.pool}`{share} is held by claim "
                            f"`{other.label}` (uid {other.uid}), which is {other.stage} here; it must be "
                            "given back first"
                        )

    # --- files ---

    def _entry_path(self, uid: str) -> Path:
        return self._entries / f"{safe_name(uid)}.json"

    def _returned_path(self, uid: str) -> Path:
        return self._returned / f"{safe_name(uid)}.json"

    def _write(self, entry: Entry, lasts: Lasts) -> None:
        _ENTRY.write(self._entry_path(entry.uid), entry, lasts)

    def _read(self, path: Path) -> _Seen | None:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        mark = (found.st_ino, found.st_mtime_ns, found.st_size)
        seen = self._seen.get(path.name)
        if seen is not None and seen.mark == mark:
            return seen
        entry = self._decoded(path)
        if entry is None:
            return None
        seen = self._seen[path.name] = _Seen(mark, entry)
        return seen

    def _decoded(self, path: Path) -> Entry | None:
        found = _ENTRY.read(path)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[1], type=Entry)
        except msgspec.DecodeError as broken:
            raise Damaged(f"`{path}` is no entry of a claim: {broken}") from None

    def _returned_note(self, uid: str) -> Returned | None:
        return self._note_at(self._returned_path(uid))

    def _note_at(self, path: Path) -> Returned | None:
        try:
            found = _RETURNED.read(path)
            return None if found is None else msgspec.json.decode(found[1], type=Returned)
        except (Damaged, Newer, msgspec.DecodeError):
            return None  # at worst a late call is not recognised; nothing is lost

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nobody else, in this process or another, begins a claim."""
        descriptor = os.open(self._lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _too_late(entry: Entry) -> str:
    why = "it was given back, and nobody else has it reserved since: this call comes too late"
    if not entry.consumers:
        return why
    return f"{why}; whoever still needs it gets it {LATE_SECONDS:.0f} seconds after it was given back"


def _answer(ready: Ready, names: tuple[str, ...], status: Mapping[str, object] | None) -> Answer:
    told = None if status is None else dict(status)
    got = ready.got
    if got is None:
        return Answer(cdi=names, status=told)
    return Answer(
        request=got.request,
        pool=got.pool,
        device=got.device,
        share_id=got.share_id,
        cdi=names,
        status=told,
    )


def _clash(mine: KeptDevice, theirs: KeptDevice) -> bool:
    if (mine.pool, mine.device) != (theirs.pool, theirs.device) or mine.admin or theirs.admin:
        return False
    return mine.share_id == theirs.share_id or not mine.share_id or not theirs.share_id
