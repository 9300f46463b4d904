"""What is told about requests: audited before anything happens, counted, and logged for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dray.server.audit.events import Outcome, is_write
from dray.server.audit.log import AuditLog
from dray.server.http.application import Ending
from dray.server.http.flow_control import Gate
from dray.server.http.requests import Request
from dray.server.objects.stored_object import Metadata
from dray.server.observability import metrics as names
from dray.server.observability.metrics import Metrics
from dray.server.watch.cache import Cache
from dray.telemetry.logs import Level, Log

SLOW_SECONDS = 1.0


class _Named(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


_NAMED = msgspec.json.Decoder(_Named)


@dataclass(frozen=True)
class Observing:
    """Sees every request come and go."""

    metrics: Metrics
    log: Log
    audit: AuditLog

    async def arrived(self, request: Request) -> None:
        await self.audit.ahead(request)

    async def answered(self, request: Request, ending: Ending) -> None:
        """Note how a request ended; a change is told to nobody before it is noted."""
        call, failure = request.call, ending.failure
        self.metrics.request(call, ending.code, ending.seconds)
        reason = "" if failure is None else failure.reason
        name = "" if call.name or not is_write(call) else _name(ending)
        outcome = Outcome(ending.code, ending.seconds, reason, request.decision, name, ending.body)
        await self.audit.complete(request, outcome)
        level = _level(request, ending)
        if level >= self.log.level:
            self._tell(level, request, ending)

    def _tell(self, level: Level, request: Request, ending: Ending) -> None:
        fields = {
            "audit": request.audit_id,
            "verb": request.call.verb,
            "path": request.call.path,
            "code": ending.code,
            "seconds": ending.seconds,
            "user": request.user.name,
            "from": request.source,
            "why": "" if ending.failure is None else ending.failure.message,
        }
        self.log.say(level, "request", fields, every=level is Level.DEBUG)

    def broke(self, request: Request, error: Exception) -> None:
        """Something went wrong that nobody foresaw."""
        self.metrics.count(names.BROKEN)
        self.log.error(
            "a request met a fault of the server",
            audit=request.audit_id,
            verb=request.call.verb,
            path=request.call.path,
            error=error,
        )

    def cut(self, request: Request) -> None:
        """A client was cut off because it did not read."""
        self.metrics.count(names.CUT)
        self.log.warning(
            "a watch was cut off: nobody read it", user=request.user.name, path=request.call.path
        )


def _level(request: Request, ending: Ending) -> Level:
    if ending.code >= 500:
        return Level.ERROR
    slow = ending.seconds > SLOW_SECONDS and not request.call.is_long
    return Level.WARNING if slow else Level.DEBUG


def _name(ending: Ending) -> str:
    """The name the server chose, as its answer tells it."""
    if ending.held is not None:
        return ending.held.name
    try:
        return _NAMED.decode(ending.body).metadata.name
    except msgspec.MsgspecError:
        return ""


def watched(metrics: Metrics, cache: Cache, gate: Gate, audit: AuditLog) -> None:
    """Let the metrics ask for what is counted elsewhere."""

    def objects() -> Iterator[tuple[tuple[str, ...], float]]:
        for kind, count in cache.counts():
            resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            yield (resource,), count

    metrics.ask(names.INFLIGHT, lambda: [((kind,), count) for kind, count in gate.in_flight.items()])
    metrics.ask(names.QUEUED, lambda: [(("waiting",), gate.waiting)])
    metrics.ask(names.LONG_RUNNING, lambda: list(gate.watches.items()))
    metrics.ask(names.CACHE_REVISION, lambda: [((), cache.revision)])
    metrics.ask(names.OBJECTS, objects)
    metrics.ask(names.AUDIT_LINES, lambda: [((), audit.written)])
    metrics.ask(names.AUDIT_DROPPED, lambda: [((), audit.dropped)])
    metrics.ask(names.AUDIT_STUCK, lambda: [((), 1 if audit.trouble else 0)])
