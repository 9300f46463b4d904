"""The table of server limits: name, default, unit, and what happens beyond each.

A limit keeps one client from taking what all clients need. Connections, flow control and admission read
their limits from this table, and so do `dray server --limit` and the reference page. The limits of objects
themselves (how many devices a slice has) are in `dray.api.validation`.
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
    """One limit, as users read it."""

    name: str
    default: float
    unit: str
    beyond: str
    about: str

    @property
    def flag_name(self) -> str:
        """The name of the limit on the command line."""
        return self.name.replace("_", "-")


def _define_limit(default: float, unit: str, about: str, beyond: str) -> Any:
    return field(default=default, metadata={"unit": unit, "about": about, "beyond": beyond})


_BUSY = "429 with `Retry-After`"
_CLOSED = "the connection is closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The values of all limits; 0 switches those limits off whose description says so."""

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
    max_queued: int = _define_limit(2_000, "requests", "queued requests", _BUSY)
    max_queued_per_user: int = _define_limit(500, "requests", "queued requests of one user", _BUSY)
    queue_seconds: float = _define_limit(10, "seconds", "the time a request may be queued", _BUSY)
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
        "the time that nodes have after a restore to report their prepared devices, "
        "before devices that several nodes can reach are allocated again",
        "the server stops waiting for nodes that the backup does not contain",
    )


LIMITS: tuple[ServerLimit, ...] = tuple(
    ServerLimit(name=row.name, default=row.default, **row.metadata)  # type: ignore[arg-type]
    for row in fields(ServerLimits)
)
"""Every configurable limit, in order."""

_WATCH_ENDS = "the watch ends with 410 and can be resumed"

FIXED_LIMITS: tuple[tuple[str, str, str], ...] = (
    ("levels of nesting in JSON", f"{MAX_DEPTH}", "400"),
    ("events buffered for one watcher", f"{MAX_BUFFERED_EVENTS:,}", _WATCH_ENDS),
    ("bytes of objects buffered for one watcher", f"{MAX_BUFFERED_BYTES >> 20} MiB", _WATCH_ENDS),
    ("bytes buffered for one watcher in its connection", "64 KiB and one event", "no more is read for it"),
)
"""Limits that are not configurable: what is bounded, the bound, and what happens beyond it."""


def format_default(limit: ServerLimit) -> str:
    """Format the default of a limit, sizes in KiB and MiB."""
    value = limit.default
    if limit.unit == "bytes" and value % 1024 == 0:
        size, unit = (value / 2**20, "MiB") if value >= 2**20 else (value / 2**10, "KiB")
        return f"{size:g} {unit}"
    return f"{value:,g}"


def list_rows() -> Iterator[tuple[str, str, str, str]]:
    """The rows of the reference table: name, what the limit bounds, default, what happens beyond it."""
    for limit in LIMITS:
        unit = "" if limit.unit == "bytes" else f" {limit.unit}"
        yield limit.flag_name, limit.about, format_default(limit) + unit, limit.beyond


def parse_limits(texts: Iterable[str]) -> ServerLimits:
    """Parse limits from the command line, each as `name=value`."""
    by_name = {limit.flag_name: limit for limit in LIMITS}
    values: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        limit = by_name.get(name)
        if limit is None:
            near = difflib.get_close_matches(name, by_name, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(by_name)}"
            raise InputError(f"no such limit `{name}`; {hint}")
        values[limit.name] = _parse_number(limit, value)
    return ServerLimits(**values)


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
