"""Metrics of a node agent: preparations, driver calls, container starts.

Names, labels and buckets are those of the kubelet where it has them, so that dashboards and alerts work
unchanged; `driver_name` is the only object name among the labels, as there. Other metrics are called
`dray_node_...`.

Rules for this file: a metric is a row of the table. Gauges of existing state are read by callbacks.
"""

from __future__ import annotations

from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import MetricDefinition, MetricType

OPERATION_SECONDS = "dra_operations_duration_seconds"
CALL_SECONDS = "dra_grpc_operations_duration_seconds"
CLAIMS_IN_USE = "dra_resource_claims_in_use"
STARTED = "kubelet_started_containers_total"
NOT_STARTED = "kubelet_started_containers_errors_total"
PODS = "kubelet_running_pods"
CONTAINERS = "kubelet_running_containers"
HELD_CLAIMS = "dray_node_prepared_claims"
DRIVERS = "dray_node_registered_drivers"
REGISTRATIONS = "dray_node_registrations_total"
WITHDRAWALS = "dray_node_withdrawals_total"
REFUSALS = "dray_node_refused_pods_total"
CERTIFICATE_EXPIRY = "dray_node_certificate_expiry_timestamp_seconds"

_CALL_BUCKETS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50)

MEASURES = numbers.build_metric_table(
    MetricDefinition(
        OPERATION_SECONDS,
        MetricType.HISTOGRAM,
        "Time to prepare all claims of a pod (PrepareResources) or to release them (UnprepareResources)",
        ("operation_name", "is_error"),
        _CALL_BUCKETS,
    ),
    MetricDefinition(
        CALL_SECONDS,
        MetricType.HISTOGRAM,
        "Time of a call to a driver, by driver, method and how it ended",
        ("driver_name", "method_name", "grpc_status_code"),
        _CALL_BUCKETS,
    ),
    MetricDefinition(
        CLAIMS_IN_USE, MetricType.GAUGE, "Claims that pods of this node use, by driver", ("driver_name",)
    ),
    MetricDefinition(STARTED, MetricType.COUNTER, "Containers that were to be started", ("container_type",)),
    MetricDefinition(
        NOT_STARTED,
        MetricType.COUNTER,
        "Containers that could not be started, by what went wrong",
        ("container_type", "code"),
    ),
    MetricDefinition(PODS, MetricType.GAUGE, "Pods that have a container running"),
    MetricDefinition(CONTAINERS, MetricType.GAUGE, "Containers, by their state", ("container_state",)),
    MetricDefinition(
        HELD_CLAIMS, MetricType.GAUGE, "Claims in the record of the agent, by how far they are", ("stage",)
    ),
    MetricDefinition(DRIVERS, MetricType.GAUGE, "Drivers that are registered"),
    MetricDefinition(
        REGISTRATIONS, MetricType.COUNTER, "Registrations of drivers, by how they ended", ("outcome",)
    ),
    MetricDefinition(
        WITHDRAWALS, MetricType.COUNTER, "Drivers whose slices were withdrawn because they stayed away"
    ),
    MetricDefinition(
        CERTIFICATE_EXPIRY,
        MetricType.GAUGE,
        "When the serving certificate of the log endpoint expires, in seconds since 1970",
    ),
    MetricDefinition(REFUSALS, MetricType.COUNTER, "Pods that were refused, by reason", ("reason",)),
)
"""All metrics of a node agent; those of the process come from the Prometheus client."""

PREPARE_OPERATION = "PrepareResources"
UNPREPARE_OPERATION = "UnprepareResources"
CONTAINER = "container"
INIT_CONTAINER = "init_container"


class NodeAgentMetrics(numbers.MetricsRegistry):
    """The metrics of one node agent."""

    def __init__(self) -> None:
        super().__init__(MEASURES)

    def observe_operation(self, operation: str, seconds: float, *, failed: bool) -> None:
        """Observe an attempt to prepare or release the claims of a pod."""
        self.observe(OPERATION_SECONDS, seconds, operation, "true" if failed else "false")

    def observe_call(self, driver: str, method: str, code: str, seconds: float) -> None:
        """Observe a driver call."""
        self.observe(CALL_SECONDS, seconds, driver, method, code)

    def count_registration(self, outcome: str) -> None:
        """Count an attempt of a driver to register: `registered`, `refused` or `failed`."""
        self.count(REGISTRATIONS, outcome)

    def count_start(self, kind: str, error: str = "") -> None:
        """Count an attempt to start a container; `error` is the reason of a failure."""
        self.count(STARTED, kind)
        if error:
            self.count(NOT_STARTED, kind, error)
