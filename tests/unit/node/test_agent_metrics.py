"""The metrics of a node agent: the kubelet's names, and correct values."""

from __future__ import annotations

import pytest

from dray.node import agent_metrics
from dray.node.agent_metrics import MEASURES, NodeAgentMetrics
from dray.telemetry.metrics import MetricType


def told(numbers: NodeAgentMetrics) -> set[str]:
    return {line for line in numbers.render().decode().splitlines() if not line.startswith("#")}


@pytest.mark.req("K4816-104")
def test_containers_are_counted_when_they_start_and_when_they_do_not() -> None:
    numbers = NodeAgentMetrics()
    numbers.count_start(agent_metrics.CONTAINER)
    numbers.count_start(agent_metrics.CONTAINER, "CreateContainerError")
    numbers.count_start(agent_metrics.INIT_CONTAINER)
    assert told(numbers) >= {
        'kubelet_started_containers_total{container_type="container"} 2.0',
        'kubelet_started_containers_total{container_type="init_container"} 1.0',
        'kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"} 1.0',
    }


def test_operations_and_calls_are_timed_as_the_kubelet_times_them() -> None:
    numbers = NodeAgentMetrics()
    numbers.observe_operation(agent_metrics.PREPARE_OPERATION, 0.15, failed=False)
    numbers.observe_operation(agent_metrics.UNPREPARE_OPERATION, 3, failed=True)
    numbers.observe_call("gpu.example.com", "/v1.DRAPlugin/NodePrepareResources", "OK", 0.05)
    seconds = "dra_operations_duration_seconds"
    call = "dra_grpc_operations_duration_seconds"
    labels = (
        'driver_name="gpu.example.com",grpc_status_code="OK",method_name="/v1.DRAPlugin/NodePrepareResources"'
    )
    assert told(numbers) >= {
        f'{seconds}_bucket{{is_error="false",le="0.1",operation_name="PrepareResources"}} 0.0',
        f'{seconds}_bucket{{is_error="false",le="0.2",operation_name="PrepareResources"}} 1.0',
        f'{seconds}_sum{{is_error="true",operation_name="UnprepareResources"}} 3.0',
        f"{call}_count{{{labels}}} 1.0",
        f"{call}_sum{{{labels}}} 0.05",
    }


@pytest.mark.parametrize("name", MEASURES)
def test_every_metric_has_a_help_text(name: str) -> None:
    row = MEASURES[name]
    assert (row.type is MetricType.COUNTER) == name.endswith("_total")
    is_duration = name.endswith("_seconds") and not name.endswith("_timestamp_seconds")
    assert (row.type is MetricType.HISTOGRAM) == is_duration == bool(row.buckets)
    assert name.startswith(("dra_", "kubelet_", "dray_node_"))
