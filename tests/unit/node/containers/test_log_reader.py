"""Reading logs: the last lines, since a time, a limit, timestamps, streams, and following."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dray.node.containers import log_reader
from dray.node.containers.log_files import build_log_path
from dray.node.containers.log_reader import LogReadOptions, follow_log, read_log
from dray.node.containers.runtime.base import ContainerId
from dray.node.containers.runtime.shim.log import ContainerLogWriter
from tests.unit.node.containers.runtime.machine import run

PIECES = some.lists(
    some.binary(max_size=60) | some.sampled_from([b"\n", b"a\nb\n", b"z" * 40000]), max_size=12
)


def entry(second: int, text: str, stream: str = "stdout", tag: str = "F") -> str:
    return f"2026-01-01T00:00:{second:02d}.000000000Z {stream} {tag} {text}\n"


def text_of(path: Path, wanted: LogReadOptions | None = None) -> bytes:
    return b"".join(read_log(path, wanted or LogReadOptions()))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    rows = [
        entry(1, "one"),
        entry(2, "odd", "stderr"),
        entry(3, "thr", tag="P"),
        entry(4, "ee"),
        entry(5, "four"),
    ]
    path.write_text("".join(rows))
    return path


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (LogReadOptions(), b"one\nodd\nthree\nfour\n"),
        (LogReadOptions(tail=0), b""),
        (LogReadOptions(tail=1), b"four\n"),
        (LogReadOptions(tail=2), b"three\nfour\n"),
        (LogReadOptions(tail=4), b"one\nodd\nthree\nfour\n"),
        (LogReadOptions(tail=400), b"one\nodd\nthree\nfour\n"),
        (LogReadOptions(limit_bytes=6), b"one\nod"),
        (LogReadOptions(limit_bytes=0), b""),
        (LogReadOptions(tail=2, limit_bytes=7), b"three\nf"),
        (LogReadOptions(stream="Stderr"), b"odd\n"),
        (LogReadOptions(stream="Stdout"), b"one\nthree\nfour\n"),
        (LogReadOptions(since=datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)), b"four\n"),
        (LogReadOptions(since=datetime(2026, 1, 1, 0, 0, 4, 1, tzinfo=UTC)), b"four\n"),
        (LogReadOptions(since=datetime(2027, 1, 1, tzinfo=UTC)), b""),
        (
            LogReadOptions(tail=2, timestamps=True),
            b"2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:05.000000000Z four\n",
        ),
    ],
)
def test_what_is_wanted_is_what_is_read(log: Path, wanted: LogReadOptions, text: bytes):
    assert text_of(log, wanted) == text


def test_an_unfinished_line_counts_and_is_shown_without_a_line_feed(log: Path):
    with log.open("a") as file:
        file.write(entry(6, "prompt> ", tag="P"))
    assert text_of(log, LogReadOptions(tail=1)) == b"prompt> "
    assert text_of(log, LogReadOptions(tail=2)) == b"four\nprompt> "


def test_what_no_runtime_wrote_is_shown_as_it_is(tmp_path: Path):
    (tmp_path / "log").write_bytes(b"hello\n\nfrom elsewhere\n")
    assert text_of(tmp_path / "log") == b"hello\n\nfrom elsewhere\n"


def test_older_files_are_part_of_the_log(log: Path):
    log.with_name("0.log.2").write_text(entry(0, "a"))
    log.with_name("0.log.1").write_text(entry(0, "b"))
    assert text_of(log) == b"a\nb\none\nodd\nthree\nfour\n"
    assert text_of(log, LogReadOptions(tail=5)) == b"b\none\nodd\nthree\nfour\n"
    assert text_of(log, LogReadOptions(tail=6)) == b"a\nb\none\nodd\nthree\nfour\n"


def test_there_is_no_log(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no log"):
        read_log(tmp_path / "0.log", LogReadOptions())


def written(folder: str, pieces: list[bytes], limit: int) -> Path:
    path = Path(folder) / "0.log"
    log = ContainerLogWriter(str(path), limit, 9)
    for piece in pieces:
        log.write_chunk(b"stdout", piece)
    log.close()
    return path


@given(pieces=PIECES, limit=some.sampled_from([200, 5000, 1 << 30]))
def test_law_the_output_of_a_container_is_what_is_read(pieces: list[bytes], limit: int):
    with tempfile.TemporaryDirectory() as folder:
        said = b"".join(pieces)
        read = text_of(written(folder, pieces, limit))
        # Ten files are kept; what is left of the log is its end.
        assert said.endswith(read)
        assert limit < 1 << 30 or read == said


@given(pieces=PIECES, tail=some.integers(0, 12), limit=some.sampled_from([50000, 1 << 30]))
def test_law_the_last_lines_are_the_last_lines(pieces: list[bytes], tail: int, limit: int):
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, pieces, limit)
        lines = _lines(text_of(path))
        assert text_of(path, LogReadOptions(tail=tail)) == b"".join(
            lines[len(lines) - min(tail, len(lines)) :]
        )


def _lines(text: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in text.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


async def followed(path: Path, wanted: LogReadOptions, ended: Callable[[], bool]) -> bytes:
    return b"".join([text async for text in follow_log(path, wanted, ended)])


def test_following_sees_what_comes_and_ends_with_the_container(log: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_reader, "_POLL_SECONDS", 0.001)
    over = False

    async def scenario() -> bytes:
        nonlocal over
        following = asyncio.create_task(followed(log, LogReadOptions(tail=1), lambda: over))
        await asyncio.sleep(0.02)
        with log.open("a") as file:
            file.write(entry(7, "more"))
        await asyncio.sleep(0.02)
        with log.open("a") as file:
            file.write(entry(8, "last"))
        over = True
        return await following

    assert run(scenario()) == b"four\nmore\nlast\n"


def test_following_goes_on_through_files_that_are_moved_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_reader, "_POLL_SECONDS", 0.0005)
    path = tmp_path / "0.log"
    over = False

    async def scenario() -> bytes:
        nonlocal over
        following = asyncio.create_task(followed(path, LogReadOptions(), lambda: over))
        log = ContainerLogWriter(str(path), 400, 9)
        for number in range(200):
            log.write_chunk(b"stdout", b"%030d\n" % number)
            await asyncio.sleep(0.001)
        log.close()
        over = True
        return await following

    assert run(scenario()) == b"".join(b"%030d\n" % number for number in range(200))


def test_following_waits_for_a_log_and_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_reader, "_POLL_SECONDS", 0.001)
    path = tmp_path / "0.log"

    async def scenario() -> bytes:
        following = asyncio.create_task(followed(path, LogReadOptions(limit_bytes=5), lambda: False))
        await asyncio.sleep(0.02)
        path.write_text(entry(1, "one") + entry(2, "two"))
        return await following

    assert run(scenario()) == b"one\nt"


def test_a_follower_that_goes_away_leaves_no_file_open(log: Path):
    async def scenario() -> None:
        lines = follow_log(log, LogReadOptions(), lambda: False)
        assert await anext(lines) == b"one\nodd\nthree\nfour\n"
        await lines.aclose()

    run(scenario())


def test_where_logs_are():
    container = ContainerId("uid-1", "main", 2)
    assert build_log_path(Path("/r"), "ml", "train-0", container) == Path("/r/ml_train-0_uid-1/main/2.log")


@pytest.mark.parametrize("name", ["../../etc", "..", ".", "a/b", "a\0b"])
def test_no_name_leads_out_of_the_logs(name: str):
    path = build_log_path(Path("/r"), name, name, ContainerId(name, name, 0))
    assert path.parts[:2] == ("/", "r")
    assert len(path.parts) == 5
    assert not {"..", "."} & set(path.parts)
    assert "\0" not in str(path)
