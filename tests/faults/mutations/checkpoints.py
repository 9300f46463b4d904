"""State files that were changed: those of the agent and those of a driver.

A file that is not byte for byte what was written is told from a good one, whatever was done to it, unless
what it says is still the same. Reading it never fails in another way than by saying so, and a driver that
finds it goes on with all its other claims.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.prepared_claims import PreparedClaimStore
from dray.driver.preparing.prepared_records import ClaimDeviceRecord, PreparedClaimRecord, PreparedRecordStage
from dray.durable import CorruptFileError, Durability, UnsupportedVersionError
from dray.node.claims.checkpoint import Checkpoint, LostCheckpoint
from dray.node.claims.record import ClaimsRecord, ClaimUser, DriverPart, RecordedClaim, RecordedDevice
from dray.node.claims.record import NodeClaimStage as NodeStage
from dray.node.plugins.driver_interface import PreparedDevice
from tests.faults.mutations.bytes import spoiled

WHOLE = 20
"""After so many changes a driver is started with what is there, which costs more than a look at the file."""
UIDS = ("claim-1", "claim-2", "claim-3")


@dataclass
class Mutations:
    """How many files were changed, and what came of it."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.breaches and self.outcomes["refused"] > 0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        return f"{self.count} changed files: {outcomes}; breaches: {'; '.join(self.breaches[:3]) or 'none'}"


def record() -> ClaimsRecord:
    """A record with something of everything."""
    device = PreparedDevice(
        request_names=("gpu",), pool="pool", device="gpu-0", cdi=("gpu.example.com/claim=x-0",)
    )
    key = RecordedDevice(pool="pool", device="gpu-0", request="gpu")
    part = DriverPart(driver="gpu.example.com", state=NodeStage.PREPARED, wanted=(key,), devices=(device,))
    users = (ClaimUser(uid="pod-1", namespace="ns", name="p", entries=("e",)),)
    held = [
        RecordedClaim(uid=uid, namespace="ns", name=f"c-{uid}", users=users, parts=(part,), announced=True)
        for uid in UIDS
    ]
    return ClaimsRecord(boot_id="boot-1", claims=tuple(held))


def agents(count: int, seed: int, folder: Path) -> Mutations:
    """Change the checkpoint of an agent so many times."""
    seen, chance, path = Mutations(), random.Random(seed), folder / "checkpoint"
    records = _write_log(path)
    good = path.read_bytes()
    while seen.count < count:
        seen.count += 1
        content = spoiled(good, chance)
        path.write_bytes(content)
        try:
            loaded = Checkpoint(path).load()
        except UnsupportedVersionError:
            seen.outcomes["refused as newer"] += 1
            seen.breaches += [f"newer: {content!r}"] if b'"version":2,' in content else []
        except Exception as broken:  # whatever it is, it should not have come out
            seen.breaches.append(f"{broken!r} for {content!r}")
        else:
            if isinstance(loaded, LostCheckpoint):
                seen.outcomes["refused"] += 1
            elif loaded == record():
                seen.outcomes["the same"] += 1
            elif loaded in records and _is_cut(content, good, records.index(loaded)):
                seen.outcomes["cut"] += 1
            else:
                seen.breaches.append(f"accepted {content!r}")
        for each in folder.iterdir():
            each.unlink()
    return seen


def _write_log(path: Path) -> list[ClaimsRecord]:
    """Write a record claim by claim; return what the file said after each line."""
    whole = record()
    records = [replace(whole, claims=whole.claims[:count]) for count in range(len(whole.claims) + 1)]

    async def write() -> None:
        checkpoint = Checkpoint(path)
        for each in records:
            await checkpoint.store(each)

    asyncio.run(write())
    return records


def _is_cut(content: bytes, good: bytes, changes: int) -> bool:
    """Return whether so many changes are whole, and no line is finished after them."""
    kept = b"".join(good.splitlines(keepends=True)[: changes + 1])
    return content.startswith(kept.removesuffix(b"\n")) and b"\n" not in content[len(kept) :]


def _book(folder: Path) -> PreparedClaimStore:
    return PreparedClaimStore(folder / "state", ClaimCdiFiles(folder / "cdi", "gpu.example.com"), "boot-1")


def _entry(uid: str) -> PreparedClaimRecord:
    number = UIDS.index(uid)
    device = ClaimDeviceRecord(request="gpu", pool="pool", device=f"gpu-{number}", consumed={"memory": "1Gi"})
    return PreparedClaimRecord(
        uid=uid,
        namespace="ns",
        name=f"c{number}",
        stage=PreparedRecordStage.PREPARED,
        boot_id="boot-1",
        devices=(device,),
    )


def drivers(count: int, seed: int, folder: Path) -> Mutations:
    """Change the state files of a driver so many times; every claim but that one stays as it was."""
    seen, chance = Mutations(), random.Random(seed)
    book = _book(folder)
    for uid in UIDS:
        book._write_record(_entry(uid), Durability.ATOMIC)
    path = book._get_record_path(UIDS[0])
    good = path.read_bytes()
    while seen.count < count:
        seen.count += 1
        content = spoiled(good, chance)
        path.write_bytes(content)
        try:
            if seen.count % WHOLE == 0:
                _judge(seen, folder, content)
            else:
                _judge_read(seen, book, content)
        except (CorruptFileError, UnsupportedVersionError) as broken:
            seen.breaches.append(f"not set in order, {broken} for {content!r}")
        except Exception as broken:  # whatever it is, it should not have come out
            seen.breaches.append(f"{broken!r} for {content!r}")
        for each in (folder / "state" / "damaged").iterdir():
            each.unlink()
    return seen


def _judge_read(seen: Mutations, book: PreparedClaimStore, content: bytes) -> None:
    """The file alone: it is told from a good one."""
    try:
        found = book._decode_record(book._get_record_path(UIDS[0]))
    except (CorruptFileError, UnsupportedVersionError):
        seen.outcomes["refused"] += 1
        return
    if found == _entry(UIDS[0]):
        seen.outcomes["the same"] += 1
    else:
        seen.breaches.append(f"accepted as {found} for {content!r}")


def _judge(seen: Mutations, folder: Path, content: bytes) -> None:
    book = _book(folder)
    trouble = book.recover(0.0)
    entries = book.list_records()
    if {uid: entries.get(uid) for uid in UIDS[1:]} != {uid: _entry(uid) for uid in UIDS[1:]}:
        seen.breaches.append(f"other claims: {entries} for {content!r}")
    found = entries.get(UIDS[0])
    if found == _entry(UIDS[0]):
        seen.outcomes["the same"] += 1
    elif found == PreparedClaimRecord(uid=UIDS[0], stage=PreparedRecordStage.PREPARING) and trouble:
        seen.outcomes["refused"] += 1
    else:
        seen.breaches.append(f"accepted as {found} for {content!r}")
