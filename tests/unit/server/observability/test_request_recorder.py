"""Metrics, audit records and log lines of requests."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from dray.clock import ManualClock
from dray.server.audit import AuditLog
from dray.server.http.application import RequestResult
from dray.server.http.errors import ApiStatusError, new_internal_error
from dray.server.observability import metrics
from dray.server.observability.metrics import ApiServerMetrics
from dray.server.observability.request_recorder import RequestRecorder
from dray.telemetry.logs import LogLevel, StructuredLogger
from tests.unit.server.audit.requests import request

BODY = b'{"kind":"Status","password":"hunter22"}'


class Seen:
    """An observer with everything it writes to."""

    def __init__(self, path, level=LogLevel.INFO) -> None:
        self.path, self.numbers = path, ApiServerMetrics()
        self._lines: list[bytes] = []
        self.log = StructuredLogger(self._take, ManualClock(), level=level, json=True)
        self.audit = AuditLog(path, ManualClock())
        self.observing = RequestRecorder(self.numbers, self.log, self.audit)

    def _take(self, line: bytes) -> bool:
        self._lines.append(line)
        return True

    def run(self, *endings, asked=None) -> None:
        async def main() -> None:
            self.audit.open()
            for ending in endings:
                await self.observing.record_arrival(asked or request())
                await self.observing.record_response(asked or request(), ending)
            await self.audit.close()

        asyncio.run(main())

    @property
    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self._lines]

    @property
    def audited(self) -> list[dict]:
        records = [json.loads(line) for line in self.path.read_bytes().splitlines()]
        return [line for line in records if line["event"] == "complete"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.log"


def test_a_write_is_counted_and_audited_with_the_rule_that_allowed_it(path):
    seen = Seen(path)
    seen.run(
        RequestResult(201, 0.01, body=BODY), asked=replace(request(), authorization_reason="role `edit`")
    )
    assert [(line["code"], line["decision"]) for line in seen.audited] == [(201, "role `edit`")]
    assert f'{metrics.REQUESTS}{{code="201"' in seen.numbers.render().decode()
    assert seen.lines == []


def test_a_denial_is_audited_with_its_reason(path):
    seen = Seen(path)
    seen.run(
        RequestResult(403, 0.01, ApiStatusError(403, "Forbidden", "no role allows it")), asked=request("get")
    )
    assert [(line["code"], line["reason"]) for line in seen.audited] == [(403, "Forbidden")]


def test_a_generated_name_is_audited(path):
    seen = Seen(path)
    seen.run(RequestResult(201, 0.01, body=b'{"metadata":{"name":"gpu-x7k2"}}'), asked=request(name=""))
    assert [line["name"] for line in seen.audited] == ["gpu-x7k2"]


@pytest.mark.parametrize(
    ("ending", "level"),
    [
        (
            RequestResult(503, 0.01, ApiStatusError(503, "ServiceUnavailable", "the store does not answer")),
            "error",
        ),
        (RequestResult(200, 1.5), "warning"),
    ],
)
def test_failed_and_slow_requests_are_logged(path, ending, level):
    seen = Seen(path)
    seen.run(ending)
    assert [(line["level"], line["audit"], line["user"], line["code"]) for line in seen.lines] == [
        (level, "a-1", "jane", ending.code)
    ]


def test_a_long_watch_is_not_logged_as_slow(path):
    seen = Seen(path)
    seen.run(RequestResult(200, 1800.0), asked=request("watch"))
    assert seen.lines == []


def test_every_request_is_logged_at_debug_level(path):
    seen = Seen(path, level=LogLevel.DEBUG)
    seen.run(*[RequestResult(200, 0.001)] * 50)
    assert len(seen.lines) == 50


def test_a_fault_is_logged_and_counted(path):
    seen = Seen(path)
    seen.observing.record_fault(request(), ZeroDivisionError("oops"))
    assert seen.lines[0]["error"] == "ZeroDivisionError: oops"
    assert f"{metrics.REQUEST_FAULTS} 1.0" in seen.numbers.render().decode()


def test_a_stalled_watch_is_logged_and_counted(path):
    seen = Seen(path)
    seen.observing.record_cutoff(request("watch"))
    assert seen.lines[0]["user"] == "jane"
    assert f"{metrics.STALLED_WATCHES} 1.0" in seen.numbers.render().decode()


def test_credentials_and_bodies_are_neither_logged_nor_counted(path):
    seen = Seen(path, level=LogLevel.DEBUG)
    secret = new_internal_error("Bearer s3cr3t-t0ken was refused")
    asked = request("create", query={"token": "s3cr3t-t0ken"}, body=BODY)
    seen.run(RequestResult(201, 0.01, body=BODY), RequestResult(500, 0.01, secret, BODY), asked=asked)
    everything = path.read_text() + str(seen.lines) + seen.numbers.render().decode()
    assert "s3cr3t-t0ken" not in everything
    assert "hunter22" not in everything
