"""Metrics by a table of definitions: counted, set, collected, limited, and separate per service."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.telemetry import metrics
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType, build_metric_table

CALLS = MetricDefinition("calls_total", MetricType.COUNTER, "Calls", ("code",))
WAITING = MetricDefinition("waiting", MetricType.GAUGE, "Who waits", ("place",))
HEIGHT = MetricDefinition("height", MetricType.GAUGE, "How high")
WAITS = MetricDefinition("wait_seconds", MetricType.HISTOGRAM, "Time of waiting", ("place",), (0.1, 1.0))
ROWS = build_metric_table(CALLS, WAITING, HEIGHT, WAITS)


def value(numbers: MetricsRegistry, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(numbers.render().decode()):
        for sample in family.samples:
            if (sample.name, sample.labels) == (name, labels):
                return float(sample.value)
    return None


def test_a_counter_adds_up_by_its_labels():
    numbers = MetricsRegistry(ROWS)
    numbers.count("calls_total", "200")
    numbers.count("calls_total", "200", by=3)
    numbers.count("calls_total", "404")
    assert value(numbers, "calls_total", code="200") == 4
    assert value(numbers, "calls_total", code="404") == 1


def test_a_gauge_goes_up_and_down_or_is_set():
    numbers = MetricsRegistry(ROWS)
    numbers.count("waiting", "here", by=5)
    numbers.count("waiting", "here", by=-2)
    assert value(numbers, "waiting", place="here") == 3
    numbers.set("waiting", 7, "here")
    assert value(numbers, "waiting", place="here") == 7


def test_durations_fall_into_buckets_that_add_up():
    numbers = MetricsRegistry(ROWS)
    for seconds in (0.05, 0.1, 0.5, 2.0):
        numbers.observe("wait_seconds", seconds, "here")
    buckets = [value(numbers, "wait_seconds_bucket", place="here", le=le) for le in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 3, 4]
    assert value(numbers, "wait_seconds_count", place="here") == 4
    assert value(numbers, "wait_seconds_sum", place="here") == pytest.approx(2.65)


def test_callbacks_are_called_when_metrics_are_scraped():
    numbers, there = MetricsRegistry(ROWS), [1.0]
    numbers.add_callback("height", lambda: [((), there[0])])
    numbers.add_callback("waiting", lambda: [(("here",), 3.0), (("there",), 2.0)])
    assert value(numbers, "height") == 1
    there[0] = 7.0
    assert value(numbers, "height") == 7
    assert value(numbers, "waiting", place="there") == 2


def test_a_metric_without_labels_is_there_before_anything_happened():
    assert value(MetricsRegistry(ROWS), "height") == 0


def test_even_a_label_that_runs_wild_has_a_bound(monkeypatch):
    monkeypatch.setattr(metrics, "MAX_SERIES", 5)
    numbers = MetricsRegistry(ROWS)
    for number in range(50):
        numbers.count("calls_total", f"{number}")
    assert value(numbers, "calls_total", code="other") == 45


def test_wrong_labels_are_noticed():
    with pytest.raises(ValueError, match="has the labels"):
        MetricsRegistry(ROWS).count("calls_total")


def test_two_services_do_not_mix():
    one, other = MetricsRegistry(ROWS), MetricsRegistry(ROWS)
    one.set("height", 3)
    assert (value(one, "height"), value(other, "height")) == (3, 0)


def test_joined_services_share_one_page_with_process_metrics_once():
    one, other = MetricsRegistry(build_metric_table(HEIGHT)), MetricsRegistry(build_metric_table(CALLS))
    one.join(other)
    one.set("height", 3)
    other.count("calls_total", "200")
    assert value(one, "height") == 3
    assert value(one, "calls_total", code="200") == 1
    assert one.render().count(b"\nprocess_resident_memory_bytes ") == 1


def test_the_process_is_measured_too():
    assert value(MetricsRegistry(ROWS), "process_resident_memory_bytes")
