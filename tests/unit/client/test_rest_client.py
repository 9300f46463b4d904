"""Which calls are retried, and which are not."""

from __future__ import annotations

import pytest

from dray.client.errors import ApiError, ServerUnreachableError, ServiceUnavailableError, TooManyRequestsError
from dray.client.rest_client import ClientOptions, RestClient
from dray.client.transport import TransportRequest, TransportResponse
from tests.support.in_process_transport import InProcessTransport
from tests.unit.client.fakeapi import FakeApi, FakeResponse, InstantTime, failed

GOOD = TransportResponse(200, {}, b"{}")


class Scripted:
    """A transport that does what it is told, call by call."""

    address = "nowhere"

    def __init__(self, *outcomes) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    async def request(self, request, *, timeout=60.0):
        self.calls += 1
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def stream(self, request, *, idle_timeout):
        raise AssertionError

    async def close(self) -> None: ...


def busy(code: int, seconds: str = "2") -> TransportResponse:
    return TransportResponse(code, {"retry-after": seconds} if seconds else {}, b"")


RESET, REFUSED = ServerUnreachableError("reset"), ServerUnreachableError("refused", sent=False)

REPEATED = [
    ("GET", RESET),
    *((method, REFUSED) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
    *((method, busy(429)) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
    *((method, busy(503)) for method in ("GET", "PUT", "DELETE")),
]
NOT_REPEATED = [
    *((method, RESET) for method in ("POST", "PUT", "PATCH", "DELETE")),
    *((method, busy(503)) for method in ("POST", "PATCH")),
    ("GET", busy(429, "")),
    ("GET", busy(429, "3600")),
    ("GET", busy(503, "")),
    ("GET", busy(500)),
    ("GET", busy(404)),
    ("PUT", busy(409)),
]


def ident(value):
    return value if isinstance(value, str) else getattr(value, "code", None) or str(value)


@pytest.mark.parametrize(("method", "outcome"), REPEATED, ids=ident)
async def test_repeated(method, outcome):
    time, transport = InstantTime(), Scripted(outcome, outcome, GOOD)
    assert (
        await RestClient(transport, ClientOptions(time_source=time.time_source)).call(
            TransportRequest(method, "/x")
        )
        is GOOD
    )
    assert transport.calls == 3
    assert len(time.slept) == 2
    if isinstance(outcome, TransportResponse):
        assert min(time.slept) >= 2


@pytest.mark.parametrize(("method", "outcome"), NOT_REPEATED, ids=ident)
async def test_not_repeated(method, outcome):
    transport = Scripted(outcome, GOOD)
    with pytest.raises((ApiError, ServerUnreachableError)):
        await RestClient(transport, ClientOptions(time_source=InstantTime().time_source)).call(
            TransportRequest(method, "/x")
        )
    assert transport.calls == 1


async def test_waiting_ends_after_the_timeout():
    transport = Scripted(*[busy(503)] * 3)
    with pytest.raises(ServiceUnavailableError):
        await RestClient(
            transport, ClientOptions(max_attempts=3, time_source=InstantTime().time_source)
        ).call(TransportRequest("GET", "/x"))
    transport = Scripted(busy(429))
    with pytest.raises(TooManyRequestsError):
        await RestClient(transport, ClientOptions(time_source=InstantTime().time_source)).call(
            TransportRequest("POST", "/x"), max_attempts=1
        )


async def test_calls_keep_the_rate():
    time, transport = InstantTime(), Scripted(*[GOOD] * 5)
    caller = RestClient(transport, ClientOptions(qps=2, burst=2, time_source=time.time_source))
    for _ in range(5):
        await caller.call(TransportRequest("GET", "/x"))
    assert sum(time.slept) == pytest.approx(1.5)


async def test_warnings_of_the_server_are_passed_on():
    heard: list[str] = []
    header = '299 - "unknown field \\"spec.x\\"", 299 - "second, with a comma"'
    transport = Scripted(TransportResponse(200, {"warning": header}, b""))
    await RestClient(transport, ClientOptions(on_warning=heard.append)).call(TransportRequest("POST", "/x"))
    assert heard == ['unknown field "spec.x"', "second, with a comma"]


async def test_the_server_gets_the_user_agent():
    api = FakeApi()
    api.answer("GET", "/x", FakeResponse({}))
    await RestClient(InProcessTransport(api, "u"), ClientOptions(field_manager="night-shift")).call(
        TransportRequest("GET", "/x")
    )
    assert api.asked[0].headers["user-agent"] == "night-shift"


async def test_a_stream_that_is_refused_is_a_failure():
    api = FakeApi()
    api.answer("GET", "/x", failed(410, "Expired", "gone"))
    with pytest.raises(ApiError, match="gone"):
        async with RestClient(InProcessTransport(api, "u"), ClientOptions()).open_stream(
            TransportRequest("GET", "/x"), idle_timeout=5
        ):
            pytest.fail("there is no stream")
