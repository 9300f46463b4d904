"""The metrics at `/metrics` are correct, bounded, and separate for each server."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.api.kinds import KINDS
from dray.server.http.requests import ApiCall
from dray.server.observability import metrics
from dray.server.observability.metrics import MEASURES, ApiServerMetrics
from dray.telemetry.metrics import MetricType


def claim(verb="create", **more) -> ApiCall:
    return ApiCall(verb, "/x", group="resource.k8s.io", version="v1", plural="resourceclaims", **more)


def samples(numbers: ApiServerMetrics) -> dict[tuple, float]:
    families = text_string_to_metric_families(numbers.render().decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(numbers: ApiServerMetrics, name: str, **labels: str) -> float | None:
    return samples(numbers).get((name, *sorted(labels.items())))


CLAIM = {
    "group": "resource.k8s.io",
    "version": "v1",
    "resource": "resourceclaims",
    "subresource": "",
    "verb": "POST",
}


def test_requests_are_counted_by_verb_resource_and_code():
    numbers = ApiServerMetrics()
    for code in (201, 201, 409):
        numbers.record_request(claim(), code, 0.002)
    assert value(numbers, metrics.REQUESTS, code="201", **CLAIM) == 2
    assert value(numbers, metrics.REQUESTS, code="409", **CLAIM) == 1


def test_durations_fall_into_buckets_that_add_up():
    numbers = ApiServerMetrics()
    for seconds in (0.0005, 0.001, 0.002, 70.0):
        numbers.record_request(claim(), 201, seconds)
    name = metrics.DURATIONS
    assert value(numbers, f"{name}_bucket", le="0.001", **CLAIM) == 2
    assert value(numbers, f"{name}_bucket", le="0.0025", **CLAIM) == 3
    assert value(numbers, f"{name}_bucket", le="60.0", **CLAIM) == 3
    assert value(numbers, f"{name}_bucket", le="+Inf", **CLAIM) == 4
    assert value(numbers, f"{name}_count", **CLAIM) == 4
    assert value(numbers, f"{name}_sum", **CLAIM) == pytest.approx(70.0035)


def test_a_watch_has_a_code_but_no_duration():
    numbers = ApiServerMetrics()
    numbers.record_request(claim("watch"), 200, 1800.0)
    watch = CLAIM | {"verb": "WATCH"}
    assert value(numbers, metrics.REQUESTS, code="200", **watch) == 1
    assert value(numbers, f"{metrics.DURATIONS}_count", **watch) is None


def test_unknown_resources_and_verbs_make_no_series():
    numbers = ApiServerMetrics()
    numbers.record_request(claim(), 201, 0.1)
    before = len(samples(numbers))
    for number in range(500):
        made_up = f"x{number}\n\u2028"
        numbers.record_request(
            ApiCall(made_up, "/x", group=made_up, version=made_up, plural=made_up), 404, 0.1
        )
        numbers.record_request(claim(subresource=made_up), 404, 0.1)
        numbers.record_request(ApiCall("get", f"/{made_up}"), 404, 0.1)
    assert len(samples(numbers)) < before + 100
    assert len(numbers._series_by_request) < 10


def test_names_and_namespaces_are_no_labels():
    forbidden = {"name", "namespace", "user", "node", "path"}
    assert not forbidden & {label for row in MEASURES.values() for label in row.labels}


def test_two_servers_do_not_mix():
    one, other = ApiServerMetrics(), ApiServerMetrics()
    one.count(metrics.STALLED_WATCHES)
    assert value(one, metrics.STALLED_WATCHES) == 1
    assert value(other, metrics.STALLED_WATCHES) == 0


def test_every_kind_has_a_series_of_its_own():
    numbers = ApiServerMetrics()
    for kind in KINDS:
        call = ApiCall("get", "/x", kind=kind, group=kind.group, version=kind.version, plural=kind.plural)
        numbers.record_request(call, 200, 0.1)
    counted = [key for key in samples(numbers) if key[0] == metrics.REQUESTS]
    assert len(counted) == len(KINDS)


@pytest.mark.parametrize("row", MEASURES.values(), ids=lambda row: row.name)
def test_names_follow_the_rules_of_prometheus(row):
    assert row.name.endswith("_total") == (row.type is MetricType.COUNTER)
    measures_time = row.name.endswith("_seconds") and not row.name.endswith("_timestamp_seconds")
    assert bool(row.buckets) == (row.type is MetricType.HISTOGRAM) == measures_time
    assert row.about[0].isupper() or row.about[0].isdigit()
    assert not row.about.endswith(".")
