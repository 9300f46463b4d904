"""Log lines: one line each, readable, without secrets, limited in number, and never blocking."""

from __future__ import annotations

import json
import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clock import ManualClock
from dray.errors import InputError
from dray.telemetry import logs
from dray.telemetry.logs import (
    ChangeLogger,
    LogLevel,
    StructuredLogger,
    build_descriptor_sink,
    redirect_library_logs,
)
from dray.telemetry.redaction import redact

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl-_x"


class Taken(list):
    def __call__(self, line: bytes) -> bool:
        self.append(line.decode())
        return True


def made(**settings) -> tuple[StructuredLogger, Taken, ManualClock]:
    lines, clock = Taken(), ManualClock()
    return StructuredLogger(lines, clock, **settings), lines, clock


def test_a_line_for_people():
    log, lines, _ = made()
    log.info("Serving", address="127.0.0.1:6443", kinds=35, tls=True, why="a b", none=None, empty="")
    assert lines == [
        '2026-01-01T00:00:00.000Z INFO    Serving address=127.0.0.1:6443 kinds=35 tls=true why="a b"\n'
    ]


def test_a_line_for_machines():
    log, lines, _ = made(json=True)
    log.warning("Slow", seconds=1.5, path="/a b")
    assert [json.loads(line) for line in lines] == [
        {
            "time": "2026-01-01T00:00:00.000Z",
            "level": "warning",
            "message": "Slow",
            "seconds": 1.5,
            "path": "/a b",
        }
    ]


def test_lines_below_the_level_are_not_written():
    log, lines, _ = made(level=LogLevel.WARNING)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line.split()[-1] for line in lines] == ["c", "d"]


@pytest.mark.parametrize("json_", [False, True])
@given(text=st.text())
def test_a_line_is_one_line_of_visible_characters_whatever_its_fields(json_, text):
    log, lines, _ = made(json=json_)
    log.info("Seen", name=text)
    assert len(lines) == 1
    line = lines[0]
    assert line.endswith("\n")
    assert len(line[:-1].splitlines()) == 1
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in line[:-1])
    if json_:
        json.loads(line)


def test_a_forged_line_stays_inside_its_field():
    log, lines, _ = made()
    log.info("Seen", name='x\n2026-01-01T00:00:00.000Z ERROR   Gone user="root"')
    assert lines[0].count("\n") == 1
    assert '\\"root\\"' in lines[0]


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"/api/v1/pods?token={TOKEN}",
        "Authorization: Bearer abcdef0123456789",
        "authorization: basic YWRtaW46YWRtaW4=",
        "password=hunter22",
        "client_secret=hunter22&x=y",
        "-----BEGIN RSA PRIVATE KEY-----hunter22",
    ],
)
def test_what_looks_like_a_credential_is_hidden(text):
    shown = redact(text)
    assert "<hidden>" in shown
    for secret in (TOKEN, "abcdef0123456789", "YWRtaW46", "hunter22"):
        assert secret not in shown


@pytest.mark.parametrize("text", ["/api/v1/namespaces/a/secrets/token-x", "basic-auth", "bearer of news"])
def test_names_that_only_sound_like_it_are_shown(text):
    assert redact(text) == text


def test_long_texts_are_cut():
    assert len(redact("x" * 100_000)) < 1100


def test_a_repeated_message_is_counted():
    log, lines, clock = made()
    for number in range(100):
        log.warning("The disk is slow", number=number)
        log.info("Other", number=number) if number == 50 else None
    assert len(lines) == logs.MAX_REPEATS + 1
    clock.advance(logs.PERIOD_SECONDS)
    log.warning("The disk is slow", number=100)
    assert lines[-1].endswith("number=100 repeated=90\n")


def test_a_complaint_is_heard_once_until_it_is_another_or_over():
    log, lines, _ = made()
    complaints = ChangeLogger(log)
    for about, why in (
        ("a", "full"),
        ("a", "full"),
        ("b", "full"),
        ("a", "gone"),
        ("a", "gone"),
        ("a", "full"),
    ):
        complaints.report(about, LogLevel.ERROR, "No luck", of=about, error=InputError(why))
    assert [line.split("of=")[1].split()[0] + line.split()[-1][:-1] for line in lines] == [
        "afull",
        "bfull",
        "agone",
        "afull",
    ]
    assert complaints.clear("a")
    assert not complaints.clear("a")
    complaints.report("a", LogLevel.ERROR, "No luck", of="a", error=InputError("full"))
    assert len(lines) == 5


def test_only_so_many_messages_are_remembered(monkeypatch):
    monkeypatch.setattr(logs, "MAX_COUNTED_MESSAGES", 10)
    log, lines, _ = made()
    for number in range(100):
        log.info(f"message {number}")
    assert len(lines) == 100
    assert len(log._counts) <= 10


def test_an_unexpected_error_is_logged_with_its_location_and_a_refusal_without():
    log, lines, _ = made()
    try:
        int("x")
    except ValueError as fault:
        log.error("Broken", error=fault)
    log.error("Refused", error=InputError("no such file"))
    log.error("Group", error=ExceptionGroup("tasks", [ExceptionGroup("more", [InputError("no such file")])]))
    assert "ValueError: invalid literal" in lines[0]
    assert " at test_logs.py:" in lines[0]
    assert lines[1].endswith('error="InputError: no such file"\n')
    assert lines[2].endswith('error="InputError: no such file"\n')


def test_a_full_pipe_drops_lines_and_counts_them():
    reader, writer = os.pipe()
    os.set_blocking(writer, True)
    log = StructuredLogger(build_descriptor_sink(writer), ManualClock())
    for number in range(2000):
        log.log(LogLevel.INFO, "x" * 500, {"number": number}, always=True)
    assert log.dropped > 0
    dropped = log.dropped
    os.set_blocking(reader, False)
    while True:
        try:
            os.read(reader, 1 << 16)
        except BlockingIOError:
            break
    log.info("again")
    assert os.read(reader, 1 << 16).decode().endswith(f"again dropped={dropped}\n")
    assert log.dropped == 0
    os.close(reader)
    log.info("nobody there")
    os.close(writer)


def test_a_line_longer_than_a_pipe_takes_is_cut():
    reader, writer = os.pipe()
    take = build_descriptor_sink(writer)
    assert take(("é" * 9000 + "\n").encode())
    line = os.read(reader, 1 << 16)
    assert len(line) <= logs.MAX_LINE_BYTES
    assert line.decode().endswith("...\n")
    os.close(reader)
    os.close(writer)


def test_libraries_log_through_the_logger():
    log, lines, _ = made()
    redirect_library_logs(log, "tests.some.library")
    logger = logging.getLogger("tests.some.library")
    logger.info("not this")
    logger.warning("careful: %s", f"Bearer {TOKEN}")
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("failed")
    assert len(lines) == 2
    assert "library=tests.some.library" in lines[0]
    assert TOKEN not in lines[0]
    assert "ValueError: bad" in lines[1]
