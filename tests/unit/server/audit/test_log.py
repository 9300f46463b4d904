"""The audit log: which requests leave lines, and what happens to requests when it cannot be written."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from msgspec import structs

from dray.clock import ManualClock
from dray.server.audit import (
    AuditFailurePolicy,
    AuditLog,
    AuditOptions,
    AuditOutcome,
    list_log_files,
    verify_files,
)
from dray.server.audit.log_file import AuditLogFile
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import ApiRequest, RequestUser
from tests.unit.server.audit.full_disk import Disk, until
from tests.unit.server.audit.requests import SOURCE, request


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for file in list_log_files(path) for line in file.read_bytes().splitlines()]


async def carried_out(log: AuditLog, asked, outcome=None) -> None:
    await log.record_received(asked)
    await log.record_complete(asked, outcome or AuditOutcome(201, decision="role `edit`", body=b'{"a":1}'))


def run(path: Path, work, settings=None) -> None:
    async def main() -> None:
        log = AuditLog(path, ManualClock(), settings or AuditOptions())
        log.open()
        try:
            async with asyncio.timeout(20):
                await work(log)
        finally:
            await log.close()

    asyncio.run(main())


def test_a_write_leaves_a_line_before_and_a_whole_line_after(tmp_path):
    path = tmp_path / "audit.log"
    run(path, lambda log: carried_out(log, request(query={"dryRun": "All", "apiToken": "hush"})))
    opened, received, complete, closed = lines(path)
    assert [opened["event"], closed["event"]] == ["opened", "closed"]
    assert received["event"] == "received"
    assert received["user"] == "jane"
    assert received["id"] == complete["id"] == "a-1"
    for volatile in ("sequence", "previous", "request", "response"):
        complete.pop(volatile)
    assert complete == {
        "event": "complete",
        "time": "2026-01-01T00:00:00.000000Z",
        "id": "a-1",
        "user": "jane",
        "groups": ["dev", "system:authenticated"],
        "source": SOURCE,
        "agent": "kubectl/v1.34",
        "verb": "create",
        "path": "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims",
        "group": "resource.k8s.io",
        "version": "v1",
        "resource": "resourceclaims",
        "namespace": "ml",
        "name": "gpu",
        "query": {"dryRun": "All", "apiToken": "<hidden>"},
        "code": 201,
        "decision": "role `edit`",
        "milliseconds": 0.0,
    }


def test_the_line_is_in_the_file_when_the_write_may_be_carried_out(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        await log.record_received(request())
        assert lines(path)[-1]["event"] == "received"

    run(path, work)


def test_reads_leave_no_line_and_denied_ones_do(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        await carried_out(log, request("list"), AuditOutcome(200))
        await carried_out(
            log, request("get", audit_id="a-2"), AuditOutcome(403, 0.1, "Forbidden", "no role allows it")
        )
        await carried_out(log, request("get", audit_id="a-3"), AuditOutcome(404, 0.1, "NotFound"))

    run(path, work)
    written_lines = [line for line in lines(path) if line["event"] == "complete"]
    assert [(line["id"], line["code"], line["decision"]) for line in written_lines] == [
        ("a-2", 403, "no role allows it")
    ]


def test_questions_about_rights_are_no_writes(tmp_path):
    path = tmp_path / "audit.log"
    asked = request("create", plural="selfsubjectaccessreviews", group="authorization.k8s.io")
    run(path, lambda log: carried_out(log, asked))
    assert [line["event"] for line in lines(path)] == ["opened", "closed"]


@pytest.mark.parametrize(
    "asked",
    [
        request(plural="secrets", group="", body=b'{"data":{"password":"aHVudGVyMg=="}}'),
        request(plural="serviceaccounts", group="", subresource="token"),
    ],
)
def test_secrets_leave_no_hash(tmp_path, asked):
    path = tmp_path / "audit.log"
    run(path, lambda log: carried_out(log, asked))
    complete = lines(path)[2]
    assert (complete["request"], complete["response"]) == ("withheld", "withheld")


def test_the_log_has_no_credentials_and_no_bodies(tmp_path):
    path = tmp_path / "audit.log"
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl"
    asked = request(
        body=b"TOPSECRET", name=token, query={"labelSelector": f"a={token}", "token": "hush-hush"}
    )
    run(
        path,
        lambda log: carried_out(
            log, asked, AuditOutcome(200, 0.1, "", f"Bearer {token}", body=b"ALSOSECRET")
        ),
    )
    text = path.read_text()
    for secret in ("s3cr3t-t0ken", "TOPSECRET", "ALSOSECRET", "hush-hush", token):
        assert secret not in text


def test_names_cannot_forge_a_line(tmp_path):
    path = tmp_path / "audit.log"
    run(path, lambda log: carried_out(log, request(name='x\r\n{"sequence":1}\u2028\x1b[2J')))
    assert len(path.read_bytes().splitlines()) == len(path.read_text().splitlines()) == 4
    assert "\x1b" not in path.read_text()


def test_a_thousand_writes_at_once_are_one_sound_chain(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        await asyncio.gather(*(carried_out(log, request(audit_id=f"a-{n}")) for n in range(1000)))

    run(path, work, AuditOptions(max_bytes=100_000, max_backups=100))
    verdict = verify_files(list_log_files(path))
    assert (verdict.lines, verdict.findings) == (2002, ())
    assert {line["id"] for line in lines(path) if line["event"] == "complete"} == {
        f"a-{n}" for n in range(1000)
    }


def test_a_slow_disk_is_waited_for_in_a_thread(tmp_path, monkeypatch):
    path, threads = tmp_path / "audit.log", set()
    real = AuditLogFile.append

    def append(file, bodies):
        threads.add(threading.current_thread() is threading.main_thread())
        real(file, bodies)

    monkeypatch.setattr(AuditLogFile, "append", append)
    monkeypatch.setattr("dray.server.audit.line_writer.SLOW_SECONDS", -1.0)

    async def work(log):
        for number in range(20):
            await asyncio.gather(*(carried_out(log, request(audit_id=f"a-{number}")) for _ in range(5)))

    run(path, work)
    assert threads == {True, False}
    verdict = verify_files([path])
    assert (verdict.lines, verdict.findings) == (202, ())


def test_a_flood_of_denials_is_counted_and_not_written(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        for number in range(200):
            await log.record_complete(request("get", audit_id=f"a-{number}"), AuditOutcome(401))
        await carried_out(log, request(audit_id="write"))

    run(path, work)
    written_lines = lines(path)
    assert len([line for line in written_lines if line.get("code") == 401]) == 20
    assert [line["count"] for line in written_lines if line["event"] == "withheld"] == [180]
    assert [line["code"] for line in written_lines if line.get("id") == "write" and "code" in line] == [201]
    assert verify_files([path]).findings == ()


def sent_by(user: str) -> ApiRequest:
    return structs.replace(request("get"), user=RequestUser(user))


def test_the_flood_of_one_caller_hides_no_other_and_is_counted_by_name(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        for _ in range(100):
            await log.record_complete(sent_by("mallory"), AuditOutcome(403))
        await log.record_complete(sent_by("eve"), AuditOutcome(403))
        await carried_out(log, request(audit_id="write"))

    run(path, work)
    written_lines = lines(path)
    denied = [line["user"] for line in written_lines if line.get("code") == 403]
    assert (denied.count("mallory"), denied.count("eve")) == (20, 1)
    withheld = [line for line in written_lines if line["event"] == "withheld"]
    assert [(line["user"], line["count"]) for line in withheld] == [("mallory", 80)]


def test_denials_of_many_callers_have_a_limit_in_common(tmp_path):
    path = tmp_path / "audit.log"

    async def work(log):
        for number in range(1500):
            await log.record_complete(sent_by(f"u-{number}"), AuditOutcome(403))
        await carried_out(log, request(audit_id="write"))

    run(path, work)
    written_lines = lines(path)
    assert len([line for line in written_lines if line.get("code") == 403]) == 200
    withheld = [line for line in written_lines if line["event"] == "withheld"]
    assert len(withheld) == 1001
    assert sum(line["count"] for line in withheld) == 1300


def test_while_the_log_cannot_be_written_nothing_is_changed_and_reads_go_on(tmp_path, monkeypatch):
    path, disk = tmp_path / "audit.log", Disk(monkeypatch)

    async def work(log):
        disk.full = True
        for _ in range(2):
            with pytest.raises(
                ApiStatusError, match=r"audit log cannot be written .No space left"
            ) as refused:
                await carried_out(log, request(audit_id="refused"))
            assert refused.value.code == 503
        assert log.write_error == "No space left on device"
        await carried_out(log, request("get"), AuditOutcome(200))
        with pytest.raises(ApiStatusError, match="no secret is read unaudited"):
            await carried_out(log, request("get", plural="secrets", group="", audit_id="refused"))
        disk.full = False
        await until(lambda: not log.write_error)
        await carried_out(log, request(audit_id="taken"))

    run(path, work)
    assert verify_files([path]).findings == ()
    written_lines = lines(path)
    assert "refused" not in {line.get("id") for line in written_lines}
    assert "taken" in {line.get("id") for line in written_lines}
    assert [line["note"] for line in written_lines if line["event"] == "resumed"] == [
        "could not be written: No space left on device"
    ]


def test_a_change_that_was_carried_out_is_noted_when_the_disk_has_space_again(tmp_path, monkeypatch):
    path, disk = tmp_path / "audit.log", Disk(monkeypatch)

    async def work(log):
        await log.record_received(request())
        disk.full = True
        await log.record_complete(request(), AuditOutcome(201))
        disk.full = False
        await until(lambda: not log.write_error)

    run(path, work)
    assert [line["code"] for line in lines(path) if line["event"] == "complete"] == [201]


def test_the_count_policy_drops_and_counts_lines(tmp_path, monkeypatch):
    path, disk = tmp_path / "audit.log", Disk(monkeypatch)
    settings = AuditOptions(max_queued=10, failure_policy=AuditFailurePolicy.COUNT)

    async def work(log):
        disk.full = True
        for number in range(30):
            await carried_out(log, request(audit_id=f"a-{number}"), AuditOutcome(409))
        assert log.dropped > 0
        disk.full = False
        await until(lambda: not log.write_error)

    run(path, work, settings)
    written_lines = lines(path)
    assert len(written_lines) > 3
    written = [line for line in written_lines if line["event"] in ("received", "complete")]
    assert sum(line["count"] for line in written_lines if line["event"] == "dropped") == 60 - len(written)
    assert len(written) <= 12
