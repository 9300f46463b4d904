"""What a process says while it runs: lines of text for people, or of JSON for machines.

Theory of operation: a line has a level, a message that is always worded the same, and fields with what
varies. So lines can be counted and found by their message, and one that comes again and again is written a
few times and then counted. A line is one line: whatever a client put into a field is escaped, and what looks
like a credential is hidden. A line never makes the process wait: when nobody takes what it says (a pipe that
is full), lines are dropped and counted.

Rules for this file: nothing here knows requests; headers and bodies are never handed to it.
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
from dray.telemetry.redaction import plain

REPEATS = 10
"""A message is written so often in a period, and then only counted."""
PERIOD_SECONDS = 60.0
MOST_MESSAGES = 1_000
LONGEST = select.PIPE_BUF
"""A pipe that takes anything takes this much without waiting."""


class Level(IntEnum):
    """How much a line matters."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


Take = Callable[[bytes], bool]
"""Takes a line; False when it cannot without waiting."""


class Log:
    """Writes lines."""

    def __init__(self, take: Take, clock: Clock, *, level: Level = Level.INFO, json: bool = False) -> None:
        self._take, self._clock = take, clock
        self.level = level
        self._form = _as_json if json else _as_text
        self._counts: dict[str, _Count] = {}
        self.dropped = 0

    def debug(self, message: str, **fields: Any) -> None:
        self.say(Level.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self.say(Level.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self.say(Level.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self.say(Level.ERROR, message, fields)

    def say(self, level: Level, message: str, fields: Mapping[str, Any], *, every: bool = False) -> None:
        """Write a line, unless it does not matter enough or was said too often; `every` is never too often.

        Fields without a value are left out.
        """
        if level < self.level:
            return
        repeated = 0 if every else self._repeated(message)
        if repeated is None:
            return
        extra = {"repeated": repeated} if repeated else {}
        self._write(level, message, {**fields, **extra})

    def _write(self, level: Level, message: str, fields: Mapping[str, Any]) -> None:
        time = self._clock.now().isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        told = {"dropped": self.dropped} if self.dropped else {}
        if self._take(self._form(time, level, plain(message), {**_shown(fields), **told})):
            self.dropped = 0
        else:
            self.dropped += 1

    def _repeated(self, message: str) -> int | None:
        """How often a message was left out before this time; None when it is left out now."""
        now = self._clock.monotonic()
        count = self._counts.get(message)
        if count is None or now - count.begun >= PERIOD_SECONDS:
            if count is None and len(self._counts) >= MOST_MESSAGES:
                self._counts.clear()
            left_out = 0 if count is None else max(0, count.times - REPEATS)
            self._counts[message] = _Count(now)
            return left_out
        count.times += 1
        return 0 if count.times <= REPEATS else None


class Complaints:
    """What stands in the way: said when it comes up or becomes another, and only for the curious meanwhile.

    For what is looked at again and again and may stay as it is for days, because only a person can change it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def say(self, about: str, level: Level, message: str, **fields: Any) -> None:
        """Say what is the case with something."""
        said = (message, _shown(fields))
        self._log.say(Level.DEBUG if self._said.get(about) == said else level, message, fields)
        self._said[about] = said

    def over(self, about: str) -> bool:
        """Nothing is the case any more; whether something was."""
        return self._said.pop(about, None) is not None


def silent() -> Log:
    """A log that nobody reads."""
    return Log(lambda _line: True, SystemClock())


class _Count:
    __slots__ = ("begun", "times")

    def __init__(self, begun: float) -> None:
        self.begun, self.times = begun, 1


def to_descriptor(file: int) -> Take:
    """Writes lines to an open file, as long as it takes them without waiting."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)

    def take(line: bytes) -> bool:
        ready = poll.poll(0)
        if not ready or ready[0][1] & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            return False
        if len(line) > LONGEST:
            line = line[: LONGEST - 5].decode("utf-8", "ignore").encode() + b"...\n"
        try:
            os.write(file, line)
        except OSError:
            return False
        return True

    return take


class Bridge(logging.Handler):
    """Brings what libraries log through Python's `logging` here."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING
        fields: dict[str, Any] = {"library": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = record.exc_info[1]
        self._log.say(level, record.getMessage(), fields)


def adopt(log: Log, *names: str) -> None:
    """Let libraries speak through this log, and nowhere else."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [Bridge(log)]
        logger.propagate = False


def _shown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in fields.items() if value is not None and value != ""}


def _value(value: Any) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, BaseException):
        return plain(_told(value))
    return plain(value if isinstance(value, str) else str(value))


def _told(error: BaseException) -> str:
    """An exception in a line: what, and unless it was raised on purpose, where."""
    while isinstance(error, BaseExceptionGroup):
        # A group of tasks says only that one of them failed.
        error = error.exceptions[0]
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, DrayError):
        return what
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in reversed(frames)]
    return f"{what} at {' < '.join(places)}" if places else what


def _as_json(time: str, level: Level, message: str, fields: Mapping[str, Any]) -> bytes:
    return write_json({"time": time, "level": level.name.lower(), "message": message, **fields}) + b"\n"


def _as_text(time: str, level: Level, message: str, fields: Mapping[str, Any]) -> bytes:
    words = [time, f"{level.name:<7}", message]
    words += [f"{name}={_quoted(value)}" for name, value in fields.items()]
    return (" ".join(words) + "\n").encode("utf-8", "backslashreplace")


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if text and not any(sign in text for sign in ' "=\\'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
