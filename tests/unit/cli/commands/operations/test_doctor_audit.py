"""`dray doctor audit`: whether an audit log is intact, and where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli.app import dray
from dray.errors import InputError
from dray.server.audit.log_file import AuditLogFile


def typed(*arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(dray, ["doctor", "audit", *arguments], standalone_mode=False)
    if ended.exception is not None:
        raise ended.exception
    return ended.return_value, ended.output


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    file = AuditLogFile(path, max_bytes=2000, max_backups=10)
    for number in range(30):
        file.append([b'{"event":"complete","n":%d}' % number])
    file.close()
    return path


def test_a_whole_log_with_its_rotated_files(log: Path) -> None:
    code, out = typed(str(log))
    assert code == 0
    assert out.startswith("30 lines in 2 files, numbers 1 to 30: the chain holds; last hash ")


def test_an_edit_is_named(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"n":28', b'"n":82'))
    code, out = typed(str(log))
    assert code == 1
    assert out.startswith("broken: ")
    assert "was changed" in out
    assert "the chain is broken" in out


def test_a_cut_off_end_is_found_by_the_hash_of_last_time(log: Path) -> None:
    head = typed(str(log))[1].split()[-1]
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    assert typed(str(log))[0] == 0
    code, out = typed(str(log), "--expect", head)
    assert code == 1
    assert head in out


def test_files_can_be_given_one_by_one(log: Path) -> None:
    files = [*sorted(map(str, log.parent.glob("audit-*.log"))), str(log)]
    assert typed(*files)[0] == 0
    assert typed(files[1], files[0])[0] == 1


def test_no_log_is_broken_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no audit log at"):
        typed(str(tmp_path / "audit.log"))


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(b"")
    assert typed(str(tmp_path / "audit.log")) == (0, "the log is empty\n")
