"""The endpoint of processes that are not the API server: metrics, health, and nothing unless enabled."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from dray.errors import InputError
from dray.telemetry.endpoint import serve_telemetry
from dray.telemetry.health import ProbeResult, run_health_checks
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType, build_metric_table

HEIGHT = MetricDefinition("height", MetricType.GAUGE, "How high")
GOOD = {"informers": lambda: None, "leader": lambda: None}
BAD = GOOD | {"informers": lambda: "pods were never listed"}


def asked(checks, *paths: str) -> list[tuple[int, str]]:
    async def ask() -> list[tuple[int, str]]:
        numbers, answers = MetricsRegistry(build_metric_table(HEIGHT)), []
        numbers.set("height", 3)
        async with (
            serve_telemetry(numbers, checks, address="127.0.0.1:0") as address,
            aiohttp.ClientSession() as client,
        ):
            for path in paths:
                async with client.get(f"http://{address}{path}") as answer:
                    answers.append((answer.status, await answer.text()))
        return answers

    return asyncio.run(ask())


def test_metrics_are_rendered():
    ((code, text),) = asked(GOOD, "/metrics")
    assert code == 200
    assert "\nheight 3.0\n" in text


def test_a_healthy_process_answers_ok():
    assert asked(GOOD, "/healthz", "/readyz", "/livez") == [(200, "ok")] * 3


def test_a_process_that_is_not_ready_reports_why_and_stays_live():
    text = "[-]informers failed: pods were never listed\n[+]leader ok\n{} check failed\n"
    assert asked(BAD, "/healthz", "/readyz", "/livez") == [
        (500, text.format("healthz")),
        (500, text.format("readyz")),
        (200, "ok"),
    ]


def test_single_checks_have_their_own_paths():
    answers = asked(BAD, "/readyz/leader", "/readyz/informers", "/readyz/other", "/readyz?verbose", "/else")
    assert [code for code, _ in answers] == [200, 500, 404, 500, 404]


def test_nothing_listens_without_an_address():
    async def ask() -> str | None:
        async with serve_telemetry(MetricsRegistry(build_metric_table(HEIGHT)), GOOD) as address:
            return address

    assert asyncio.run(ask()) is None


def test_the_address_is_free_again_afterwards():
    async def twice() -> list[str | None]:
        seen: list[str | None] = ["127.0.0.1:0"]
        for _ in range(2):
            async with serve_telemetry(
                MetricsRegistry(build_metric_table(HEIGHT)), GOOD, address=seen[-1]
            ) as address:
                seen.append(address)
        return seen

    first, second, third = asyncio.run(twice())
    assert first != second
    assert second == third


def test_an_address_in_use_is_an_error():
    async def both() -> None:
        numbers = MetricsRegistry(build_metric_table(HEIGHT))
        async with serve_telemetry(numbers, GOOD, address="127.0.0.1:0") as address:
            with pytest.raises(InputError, match=f"cannot listen on `{address}`: address already in use$"):
                async with serve_telemetry(numbers, GOOD, address=address):
                    pass

    asyncio.run(both())


@pytest.mark.parametrize("address", ["localhost", "localhost:http", "localhost:65536", ":"])
def test_what_is_no_address_is_refused(address):
    async def ask() -> None:
        async with serve_telemetry(MetricsRegistry(build_metric_table(HEIGHT)), GOOD, address=address):
            pass

    with pytest.raises(InputError, match="expected HOST:PORT"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "verbose", "health"),
    [
        ("/readyz", False, ProbeResult(True, "ok")),
        ("/readyz/", True, ProbeResult(True, "[+]informers ok\n[+]leader ok\nreadyz check passed\n")),
        ("/healthz/leader", True, ProbeResult(True, "[+]leader ok\nhealthz check passed\n")),
        ("/livez", True, ProbeResult(True, "livez check passed\n")),
        ("/readyz/nothing", False, None),
        ("/metrics", False, None),
        ("/", False, None),
    ],
)
def test_health_by_path(path, verbose, health):
    assert run_health_checks(path, GOOD, verbose=verbose) == health
