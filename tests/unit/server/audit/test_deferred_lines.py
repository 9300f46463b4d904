"""Deferred lines: the `received` line of a write goes to the log with its commit, or with its outcome."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from dray.clock import ManualClock
from dray.server.audit import AuditFailurePolicy, AuditLog, AuditOptions, AuditOutcome, verify_files
from dray.server.http.requests import ApiRequest
from dray.store.errors import RecordNotWrittenError
from dray.store.records import CommitRecord, append_records
from tests.unit.server.audit.full_disk import Disk, until
from tests.unit.server.audit.requests import request


def read_events(path: Path) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [(line["event"], line.get("id", "")) for line in lines][1:-1]


def run(path: Path, work, options: AuditOptions | None = None) -> list[tuple[str, str]]:
    """Work with an open log; returns the lines between the first and the last, once the chain is verified."""

    async def main() -> None:
        log = AuditLog(path, ManualClock(), options or AuditOptions())
        log.open()
        while not log.written:
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(60):
                await work(log)
        finally:
            await log.close()

    asyncio.run(main())
    assert verify_files([path]).findings == ()
    return read_events(path)


def defer(log: AuditLog, number: int = 1) -> ApiRequest:
    asked = request(audit_id=f"a-{number}")
    record = log.defer_received(asked)
    assert record is not None
    return replace(asked, record=record)


async def commit(*requests: ApiRequest) -> None:
    """Do what the thread of a store does with the records of a group."""
    refused = await asyncio.to_thread(append_records, [each.record for each in requests if each.record])
    for error in refused.values():
        raise error


def test_the_line_is_written_with_the_commit_and_the_outcome_after_it(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        first, second = defer(log, 1), defer(log, 2)
        assert path.read_bytes().count(b"received") == 0
        await commit(first, second)
        assert path.read_bytes().count(b"received") == 2
        await log.record_complete(first, AuditOutcome(201))
        await log.record_complete(second, AuditOutcome(201))

    assert run(path, work) == [
        ("received", "a-1"),
        ("received", "a-2"),
        ("complete", "a-1"),
        ("complete", "a-2"),
    ]


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("code", [200, 403, 422])
def test_a_request_that_commits_nothing_has_both_lines(tmp_path, code, in_process):
    async def work(log):
        asked = replace(defer(log), has_unique_fields=in_process)
        await log.record_complete(asked, AuditOutcome(code))

    assert run(tmp_path / "audit.log", work) == [("received", "a-1"), ("complete", "a-1")]


def test_denials_beyond_the_limit_keep_the_line_of_the_write(tmp_path):
    async def work(log):
        for asked in [defer(log, number) for number in range(30)]:
            await log.record_complete(asked, AuditOutcome(403))

    events = run(tmp_path / "audit.log", work)
    assert [event for event, _ in events].count("received") == 30
    assert [event for event, _ in events].count("complete") == 20
    assert [event for event, _ in events].count("withheld") == 1


def test_a_full_disk_refuses_the_commit_and_the_log_goes_on_when_it_has_space(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)

    async def work(log):
        asked = defer(log)
        disk.full = True
        with pytest.raises(RecordNotWrittenError, match=r"audit log cannot be written .No space left"):
            await commit(asked)
        await until(lambda: log.write_error)
        assert log.defer_received(request()) is None
        await log.record_complete(asked, AuditOutcome(503))
        disk.full = False
        await until(lambda: not log.write_error)
        later = defer(log, 2)
        await commit(later)
        await log.record_complete(later, AuditOutcome(201))

    events = run(tmp_path / "audit.log", work)
    assert [event for event in events if event[0] != "resumed"] == [
        ("complete", "a-1"),
        ("received", "a-2"),
        ("complete", "a-2"),
    ]
    assert ("resumed", "") in events


def test_who_prefers_availability_is_not_refused_by_the_store(tmp_path):
    async def work(log):
        assert log.defer_received(request()) is None

    run(tmp_path / "audit.log", work, AuditOptions(failure_policy=AuditFailurePolicy.COUNT))


def test_reads_leave_no_record(tmp_path):
    async def work(log):
        assert log.defer_received(request("list")) is None

    run(tmp_path / "audit.log", work)


def test_threads_and_the_event_loop_write_one_chain(tmp_path):
    async def work(log):
        async def write(number: int) -> None:
            asked = defer(log, number)
            await commit(asked)
            await log.record_complete(asked, AuditOutcome(201))

        for turn in range(20):
            await asyncio.gather(*(write(20 * turn + number) for number in range(20)))
        assert log.written == 801

    events = run(tmp_path / "audit.log", work, AuditOptions(max_bytes=1 << 30))
    assert sorted(events) == sorted(
        (event, f"a-{number}") for number in range(400) for event in ("received", "complete")
    )
    assert all(
        events.index(("received", f"a-{number}")) < events.index(("complete", f"a-{number}"))
        for number in range(400)
    )


def test_a_commit_after_the_end_of_the_log_is_refused(tmp_path):
    kept: list[CommitRecord] = []

    async def work(log):
        record = defer(log).record
        assert record is not None
        kept.append(record)

    run(tmp_path / "audit.log", work)
    thread = threading.Thread(target=lambda: refusals.append(append_records(kept)))
    refusals: list[dict] = []
    thread.start()
    thread.join()
    assert [str(error) for error in refusals[0].values()] == [
        "the audit log cannot be written (it is closed), and nothing is changed and no secret is read "
        "unaudited; other reads still work"
    ]
