"""The log file keeps its chain intact through restarts, crashes, full disks and rotation."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from dray.errors import InputError
from dray.server.audit import list_log_files, verify_files
from dray.server.audit.log_file import AuditLogFile

BODY = b'{"event":"complete"}'


def opened(path, largest=1 << 20, keep=3):
    return AuditLogFile(path, max_bytes=largest, max_backups=keep)


def filled(path, batches=3, **more):
    file = opened(path, **more)
    for _ in range(batches):
        file.append([BODY, BODY])
    file.close()
    return file


def test_the_chain_continues_after_a_restart(tmp_path):
    path = tmp_path / "audit.log"
    filled(path)
    filled(path)
    verdict = verify_files([path])
    assert (verdict.lines, verdict.findings) == (12, ())


def test_only_the_owner_may_read_it(tmp_path):
    filled(tmp_path / "audit.log")
    assert stat.S_IMODE((tmp_path / "audit.log").stat().st_mode) == 0o600


def test_the_chain_continues_through_rotated_files(tmp_path):
    path = tmp_path / "audit.log"
    filled(path, batches=20, largest=600, keep=99)
    files = list_log_files(path)
    assert len(files) > 5
    assert files[-1] == path
    verdict = verify_files(files)
    assert (verdict.lines, verdict.findings) == (40, ())


def test_a_missing_rotated_file_is_found(tmp_path):
    path = tmp_path / "audit.log"
    filled(path, batches=20, largest=600, keep=99)
    files = list_log_files(path)
    assert not verify_files(files[:2] + files[3:]).is_intact


def test_the_number_of_rotated_files_is_limited(tmp_path):
    path = tmp_path / "audit.log"
    filled(path, batches=20, largest=600, keep=2)
    files = list_log_files(path)
    assert len(files) == 3
    verdict = verify_files(files)
    assert verdict.is_intact
    assert verdict.last == 40


def test_a_crash_between_the_rename_and_the_new_file_loses_nothing(tmp_path):
    path = tmp_path / "audit.log"
    filled(path)
    path.rename(tmp_path / "audit-000000000006.log")
    filled(path, batches=1)
    verdict = verify_files(list_log_files(path))
    assert (verdict.lines, verdict.findings) == (8, ())


def test_wherever_a_crash_tears_the_last_line_the_next_start_closes_it(tmp_path):
    path = tmp_path / "audit.log"
    filled(path)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last, len(whole) + 1):
        path.write_bytes(whole[:cut])
        filled(path, batches=1)
        verdict = verify_files([path])
        assert verdict.is_intact, (cut, verdict.findings)
        assert verdict.last == (7 if cut == last else 8)


def test_a_torn_end_of_zeros_and_lines_is_closed(tmp_path):
    path = tmp_path / "audit.log"
    filled(path)
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"\n" + b"\0" * 50)
    filled(path, batches=1)
    assert verify_files([path]).is_intact


def test_two_processes_cannot_have_one_log(tmp_path):
    file = opened(tmp_path / "audit.log")
    with pytest.raises(InputError, match="in use by another process"):
        opened(tmp_path / "audit.log")
    file.close()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot open the audit log"):
        opened(tmp_path / "file" / "audit.log")


def test_a_full_disk_leaves_whole_lines_and_the_chain_goes_on_when_there_is_space(tmp_path, monkeypatch):
    path = tmp_path / "audit.log"
    file = opened(path)
    file.append([BODY])
    real, calls = os.write, []

    def half(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        file.append([BODY, BODY])
    monkeypatch.setattr(os, "write", real)
    file.append([BODY])
    file.close()
    verdict = verify_files([path])
    assert (verdict.lines, verdict.findings) == (2, ())
