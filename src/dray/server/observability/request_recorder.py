"""The request recorder: writes audit records, metrics and logs of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from dray.api.transactions import UNAVAILABLE_CODE, find_failed_request
from dray.server.audit.events import AuditOutcome
from dray.server.audit.log import AuditLog
from dray.server.http.application import RequestResult
from dray.server.http.flow_control import FlowController
from dray.server.http.requests import ApiCall, ApiRequest, PartResult
from dray.server.objects.stored_object import StoredMetadata
from dray.server.observability import metrics as names
from dray.server.observability.metrics import ApiServerMetrics
from dray.server.watch.cache import WatchCache
from dray.telemetry.logs import LogLevel, StructuredLogger

SLOW_REQUEST_SECONDS = 1.0


class _MetadataOnly(msgspec.Struct, frozen=True):
    metadata: StoredMetadata = StoredMetadata()


_METADATA_DECODER = msgspec.json.Decoder(_MetadataOnly)


@dataclass(frozen=True)
class RequestRecorder:
    """Records every request in the audit log, the metrics and the log."""

    metrics: ApiServerMetrics
    log: StructuredLogger
    audit: AuditLog
    commits_record: Callable[[ApiCall], bool] = lambda _call: False
    """Whether the first commit of a call writes its record, so that nothing must be written before."""

    async def record_arrival(self, request: ApiRequest) -> ApiRequest:
        if self.commits_record(request.call):
            record = self.audit.defer_received(request)
            if record is not None:
                return replace(request, record=record)
        await self.audit.record_received(request)
        return request

    async def record_response(self, request: ApiRequest, result: RequestResult) -> None:
        """Record the end of a request; the response of a write is sent only after its audit record."""
        call = request.call
        self.metrics.record_request(call, result.code, result.seconds)
        reason = "" if result.error is None else result.error.reason
        named = call.name or not call.is_write or request.parts
        name = "" if named else _read_object_name(result)
        parts = _list_part_results(request, result) if request.parts else ()
        for part, done in zip(request.parts, parts, strict=True):
            if done.code:
                self.metrics.record_part(part.call, done.code, result.seconds)
        outcome = AuditOutcome(
            result.code, result.seconds, reason, request.authorization_reason, name, result.body, parts
        )
        await self.audit.record_complete(request, outcome)
        level = _choose_log_level(request, result)
        if level >= self.log.level:
            self._log_request(level, request, result)

    def _log_request(self, level: LogLevel, request: ApiRequest, result: RequestResult) -> None:
        fields = {
            "audit": request.audit_id,
            "verb": request.call.verb,
            "path": request.call.path,
            "code": result.code,
            "seconds": result.seconds,
            "user": request.caller.name,
            "impersonated": "" if request.impersonator is None else request.user.name,
            "from": request.source,
            "why": "" if result.error is None else result.error.message,
        }
        self.log.log(level, "request", fields, always=level is LogLevel.DEBUG)

    def record_fault(self, request: ApiRequest, error: Exception) -> None:
        """Record an unexpected exception."""
        self.metrics.count(names.REQUEST_FAULTS)
        self.log.error(
            "a request ended in a fault of the server",
            audit=request.audit_id,
            verb=request.call.verb,
            path=request.call.path,
            error=error,
        )

    def record_cutoff(self, request: ApiRequest) -> None:
        """Record a watch that was ended because its client did not read it."""
        self.metrics.count(names.STALLED_WATCHES)
        self.log.warning(
            "a watch was ended: its client did not read it", user=request.caller.name, path=request.call.path
        )


def _choose_log_level(request: ApiRequest, result: RequestResult) -> LogLevel:
    if result.code >= 500 and result.code != UNAVAILABLE_CODE:
        return LogLevel.ERROR
    slow = result.seconds > SLOW_REQUEST_SECONDS and not request.call.is_long_running
    return LogLevel.WARNING if slow else LogLevel.DEBUG


def _list_part_results(request: ApiRequest, result: RequestResult) -> tuple[PartResult, ...]:
    """What became of the requests of a transaction; when one was refused, the others were not carried out."""
    if result.parts:
        return result.parts
    causes = (result.error.details or {}).get("causes", ()) if result.error is not None else ()
    failed = find_failed_request(causes)
    return tuple(
        PartResult(result.code) if number == failed else PartResult()
        for number, _ in enumerate(request.parts)
    )


def _read_object_name(result: RequestResult) -> str:
    """The generated name of a created object, from the response."""
    if result.stored is not None:
        return result.stored.name
    try:
        return _METADATA_DECODER.decode(result.body).metadata.name
    except msgspec.MsgspecError:
        return ""


def register_gauges(
    metrics: ApiServerMetrics, cache: WatchCache, flow_controller: FlowController, audit: AuditLog
) -> None:
    """Register gauges whose values other components maintain."""

    def count_objects() -> Iterator[tuple[tuple[str, ...], float]]:
        for kind, count in cache.count_by_kind():
            resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
            yield (resource,), count

    metrics.add_callback(
        names.INFLIGHT, lambda: [((kind,), count) for kind, count in flow_controller.in_flight.items()]
    )
    metrics.add_callback(names.QUEUED, lambda: [(("waiting",), flow_controller.queued)])
    metrics.add_callback(names.LONG_RUNNING, lambda: list(flow_controller.watches.items()))
    metrics.add_callback(names.CACHE_REVISION, lambda: [((), cache.revision)])
    metrics.add_callback(names.OBJECTS, count_objects)
    metrics.add_callback(names.AUDIT_LINES, lambda: [((), audit.written)])
    metrics.add_callback(names.AUDIT_DROPPED, lambda: [((), audit.dropped)])
    metrics.add_callback(names.AUDIT_STUCK, lambda: [((), 1 if audit.write_error else 0)])
