"""Structured logging: lines of text for people, or of JSON for programs.

Theory of operation: a line has a level, a message that is always worded the same, and fields with what
varies. So lines can be counted and found by their message, and a message that repeats is written a few times
and then only counted. A line is one line: control characters that a client put into a field are escaped, and
what looks like a credential is redacted. Logging never blocks the process: when the sink accepts nothing (a
full pipe), lines are dropped and counted.

This module knows nothing of requests; headers and bodies are never passed to it.
"""

from __future__ import annotations

import logging
import os
import select
import traceback
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from dray.api.json_text import write_json
from dray.clock import Clock, SystemClock
from dray.errors import DrayError
from dray.telemetry.redaction import redact

MAX_REPEATS = 10
"""How often a message is written in a period before it is only counted."""
PERIOD_SECONDS = 60.0
MAX_COUNTED_MESSAGES = 1_000
MAX_LINE_BYTES = select.PIPE_BUF
"""A pipe that accepts any byte accepts this many without blocking."""


class LogLevel(IntEnum):
    """Severity of a line."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


LineSink = Callable[[bytes], bool]
"""Accepts a line; returns False when that would block."""


class StructuredLogger:
    """Writes log lines to a sink."""

    def __init__(
        self, sink: LineSink, clock: Clock, *, level: LogLevel = LogLevel.INFO, json: bool = False
    ) -> None:
        self._sink, self._clock = sink, clock
        self.level = level
        self._format_line = _format_json if json else _format_text
        self._counts: dict[str, _RepeatCount] = {}
        self.dropped = 0

    def debug(self, message: str, **fields: Any) -> None:
        self.log(LogLevel.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self.log(LogLevel.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self.log(LogLevel.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self.log(LogLevel.ERROR, message, fields)

    def log(self, level: LogLevel, message: str, fields: Mapping[str, Any], *, always: bool = False) -> None:
        """Write a line, unless its level is too low or its message repeats too often; `always` ignores
        repeats.

        Fields without a value are left out.
        """
        if level < self.level:
            return
        repeated = 0 if always else self._count_repeats(message)
        if repeated is None:
            return
        extra = {"repeated": repeated} if repeated else {}
        self._write(level, message, {**fields, **extra})

    def _write(self, level: LogLevel, message: str, fields: Mapping[str, Any]) -> None:
        time = self._clock.now().isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        drops = {"dropped": self.dropped} if self.dropped else {}
        if self._sink(self._format_line(time, level, redact(message), {**_clean_fields(fields), **drops})):
            self.dropped = 0
        else:
            self.dropped += 1

    def _count_repeats(self, message: str) -> int | None:
        """Return how often a message was left out before this time; None when it is left out now."""
        now = self._clock.monotonic()
        count = self._counts.get(message)
        if count is None or now - count.started >= PERIOD_SECONDS:
            if count is None and len(self._counts) >= MAX_COUNTED_MESSAGES:
                self._counts.clear()
            left_out = 0 if count is None else max(0, count.times - MAX_REPEATS)
            self._counts[message] = _RepeatCount(now)
            return left_out
        count.times += 1
        return 0 if count.times <= MAX_REPEATS else None


class ChangeLogger:
    """Logs a condition when it appears or changes, and at debug level in between.

    For conditions that are checked again and again and may last for days, because only a person can change
    them.
    """

    def __init__(self, log: StructuredLogger) -> None:
        self._log = log
        self._reported: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def report(self, subject: str, level: LogLevel, message: str, **fields: Any) -> None:
        """Report the current condition of a subject."""
        report = (message, _clean_fields(fields))
        self._log.log(LogLevel.DEBUG if self._reported.get(subject) == report else level, message, fields)
        self._reported[subject] = report

    def clear(self, subject: str) -> bool:
        """Forget the condition of a subject; returns whether there was one."""
        return self._reported.pop(subject, None) is not None


def build_silent_logger() -> StructuredLogger:
    """Build a logger that discards every line."""
    return StructuredLogger(lambda _line: True, SystemClock())


class _RepeatCount:
    __slots__ = ("started", "times")

    def __init__(self, started: float) -> None:
        self.started, self.times = started, 1


def build_descriptor_sink(file: int) -> LineSink:
    """Build a sink that writes to an open file and drops lines that would block."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)

    def write_line(line: bytes) -> bool:
        ready = poll.poll(0)
        if not ready or ready[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            return False
        if len(line) > MAX_LINE_BYTES:
            line = line[: MAX_LINE_BYTES - 5].decode("utf-8", "ignore").encode() + b"...\n"
        try:
            os.write(file, line)
        except OSError:
            return False
        return True

    return write_line


class LoggingBridge(logging.Handler):
    """Forwards records of Python's `logging` to a structured logger."""

    def __init__(self, log: StructuredLogger) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = LogLevel.ERROR if record.levelno >= logging.ERROR else LogLevel.WARNING
        fields: dict[str, Any] = {"library": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = record.exc_info[1]
        self._log.log(level, record.getMessage(), fields)


def redirect_library_logs(log: StructuredLogger, *names: str) -> None:
    """Send the logs of libraries to this logger, and nowhere else."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [LoggingBridge(log)]
        logger.propagate = False


def _clean_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean_value(value) for name, value in fields.items() if value is not None and value != ""}


def _clean_value(value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, BaseException):
        return redact(_describe_error(value))
    return redact(value if isinstance(value, str) else str(value))


def _describe_error(error: BaseException) -> str:
    """Describe an exception in one line, with its location unless dray raised it on purpose."""
    while isinstance(error, BaseExceptionGroup):
        # An exception group only says that some task failed.
        error = error.exceptions[0]
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, DrayError):
        return what
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in reversed(frames)]
    return f"{what} at {' < '.join(places)}" if places else what


def _format_json(time: str, level: LogLevel, message: str, fields: Mapping[str, Any]) -> bytes:
    return write_json({"time": time, "level": level.name.lower(), "message": message, **fields}) + b"\n"


def _format_text(time: str, level: LogLevel, message: str, fields: Mapping[str, Any]) -> bytes:
    parts = [time, f"{level.name:<7}", message]
    parts += [f"{name}={_quote(value)}" for name, value in fields.items()]
    return (" ".join(parts) + "\n").encode("utf-8", "backslashreplace")


def _quote(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text and not any(sign in text for sign in ' "=\\'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
