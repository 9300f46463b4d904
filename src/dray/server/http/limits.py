"""Every limit of the server: its value, its name, and what is answered beyond it.

A limit keeps one client from taking what all need. Each stands in this table once; the doors that apply
it, `dray server --limit` and the reference page read it from here. The limits of objects themselves
(how many devices a slice has) are another table, in `api.validate`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from dray.api.json_text import MAX_DEPTH
from dray.errors import InputError
from dray.store.base import MAX_BUFFERED_BYTES, MAX_BUFFERED_EVENTS


@dataclass(frozen=True, slots=True)
class ServerLimit:
    """One limit, in words."""

    name: str
    default: float
    unit: str
    beyond: str
    about: str

    @property
    def flag_name(self) -> str:
        """Its name on the command line."""
        return self.name.replace("_", "-")


def _define_limit(default: float, unit: str, about: str, beyond: str) -> Any:
    return field(default=default, metadata={"unit": unit, "about": about, "beyond": beyond})


_BUSY = "429 with `Retry-After`"
_CLOSED = "the connection is closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The values of all limits; 0 switches off those that say so."""

    max_body_bytes: int = _define_limit(3 << 20, "bytes", "the body of a request", "413")
    max_object_bytes: int = _define_limit(3 << 19, "bytes", "an object as it is stored", "413")
    max_header_bytes: int = _define_limit(64 << 10, "bytes", "the headers of a request together", "431")
    max_headers: int = _define_limit(100, "headers", "the headers of a request", "431")
    max_url_bytes: int = _define_limit(16 << 10, "bytes", "the path and query of a request", "414")
    max_connections: int = _define_limit(4_096, "connections", "open connections", f"503, then {_CLOSED}")
    request_seconds: float = _define_limit(
        30, "seconds", "the time a request may take to arrive, from its first byte to its last", "408"
    )
    idle_seconds: float = _define_limit(
        180, "seconds", "the time a connection may be open without a request", _CLOSED
    )
    stalled_seconds: float = _define_limit(
        30, "seconds", "the time a client may take to read what it was sent", _CLOSED
    )
    max_in_flight: int = _define_limit(400, "requests", "requests carried out at a time", "the request waits")
    max_queued: int = _define_limit(2_000, "requests", "requests that wait for a place", _BUSY)
    max_queued_per_user: int = _define_limit(
        500, "requests", "requests of one user that wait for a place", _BUSY
    )
    queue_seconds: float = _define_limit(10, "seconds", "the time a request may wait for a place", _BUSY)
    requests_per_second: float = _define_limit(
        0, "requests", "requests of one user per second, in bursts of twice as many; 0 is no limit", _BUSY
    )
    max_watches: int = _define_limit(10_000, "watches", "open watches", _BUSY)
    max_watches_per_user: int = _define_limit(5_000, "watches", "open watches of one user", _BUSY)
    max_page: int = _define_limit(
        10_000, "objects", "objects in one page of a list that is read in pages", "the page is shorter"
    )
    max_objects_per_namespace: int = _define_limit(
        0, "objects", "objects of one kind in one namespace; 0 is no limit", "403"
    )
    restored_seconds: float = _define_limit(
        60,
        "seconds",
        "the time that nodes have after a restore to say what they have in their hands, "
        "before devices that several nodes reach are given anew",
        "nodes that the copy does not know are not waited for",
    )


LIMITS: tuple[ServerLimit, ...] = tuple(
    ServerLimit(name=row.name, default=row.default, **row.metadata)  # type: ignore[arg-type]
    for row in fields(ServerLimits)
)
"""Every limit that can be set, in order."""

_WATCH_ENDS = "the watch ends with 410 and can be resumed"

FIXED_LIMITS: tuple[tuple[str, str, str], ...] = (
    ("levels of nesting in JSON", f"{MAX_DEPTH}", "400"),
    ("events that wait for one watcher", f"{MAX_BUFFERED_EVENTS:,}", _WATCH_ENDS),
    ("bytes of objects that wait for one watcher", f"{MAX_BUFFERED_BYTES >> 20} MiB", _WATCH_ENDS),
    ("bytes that wait for one watcher in its connection", "64 KiB and one event", "no more is read for it"),
)
"""Limits that nobody has to set: what, how many, what happens beyond."""


def format_default(limit: ServerLimit) -> str:
    """A default as people read it."""
    value = limit.default
    if limit.unit == "bytes" and value % 1024 == 0:
        size, unit = (value / 2**20, "MiB") if value >= 2**20 else (value / 2**10, "KiB")
        return f"{size:g} {unit}"
    return f"{value:,g}"


def list_rows() -> Iterator[tuple[str, str, str, str]]:
    """The table for people: name, what it bounds, default, what happens beyond it."""
    for limit in LIMITS:
        unit = "" if limit.unit == "bytes" else f" {limit.unit}"
        yield limit.flag_name, limit.about, format_default(limit) + unit, limit.beyond


def parse_limits(texts: Iterable[str]) -> ServerLimits:
    """Limits as they are set on the command line, each as `name=value`."""
    by_word = {limit.flag_name: limit for limit in LIMITS}
    chosen: dict[str, Any] = {}
    for text in texts:
        word, _, value = text.partition("=")
        limit = by_word.get(word)
        if limit is None:
            near = difflib.get_close_matches(word, by_word, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(by_word)}"
            raise InputError(f"no such limit `{word}`; {hint}")
        chosen[limit.name] = _parse_number(limit, value)
    return ServerLimits(**chosen)


def _parse_number(limit: ServerLimit, text: str) -> float:
    whole = not limit.name.endswith("_seconds") and not limit.name.endswith("_second")
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**53:
        kind = "a whole number" if whole else "a number"
        raise InputError(f"limit `{limit.flag_name}`: expected {kind} of {limit.unit}, not `{text}`")
    return value
