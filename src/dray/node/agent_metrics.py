"""What a node agent counts and times: preparations, the calls to drivers, the containers it starts.

Names, labels and buckets are those of the kubelet where it has them, so that dashboards and alerts work
unchanged; `driver_name` is the one name of an object that becomes a label, as there. Ours are called
`dray_node_...`.

Rules for this file: a metric is a row of the table. What somebody knows anyway is asked when somebody reads.
"""

from __future__ import annotations

from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import Measure, Sort

OPERATION_SECONDS = "dra_operations_duration_seconds"
CALL_SECONDS = "dra_grpc_operations_duration_seconds"
IN_USE = "dra_resource_claims_in_use"
STARTED = "kubelet_started_containers_total"
NOT_STARTED = "kubelet_started_containers_errors_total"
PODS = "kubelet_running_pods"
CONTAINERS = "kubelet_running_containers"
HELD = "dray_node_prepared_claims"
DRIVERS = "dray_node_registered_drivers"
REGISTRATIONS = "dray_node_registrations_total"
WITHDRAWALS = "dray_node_withdrawals_total"
REFUSALS = "dray_node_refused_pods_total"

_CALLS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 40, 50)

MEASURES = numbers.table(
    Measure(
        OPERATION_SECONDS,
        Sort.HISTOGRAM,
        "Time to prepare all claims of a pod (PrepareResources) or to give them back (UnprepareResources)",
        ("operation_name", "is_error"),
        _CALLS,
    ),
    Measure(
        CALL_SECONDS,
        Sort.HISTOGRAM,
        "Time of a call to a driver, by driver, method and how it ended",
        ("driver_name", "method_name", "grpc_status_code"),
        _CALLS,
    ),
    Measure(IN_USE, Sort.GAUGE, "Claims that pods of this node use, by driver", ("driver_name",)),
    Measure(STARTED, Sort.COUNTER, "Containers that were to be started", ("container_type",)),
    Measure(
        NOT_STARTED,
        Sort.COUNTER,
        "Containers that could not be started, by what went wrong",
        ("container_type", "code"),
    ),
    Measure(PODS, Sort.GAUGE, "Pods that have a container running"),
    Measure(CONTAINERS, Sort.GAUGE, "Containers, by their state", ("container_state",)),
    Measure(HELD, Sort.GAUGE, "Claims in the record of the agent, by how far they are", ("stage",)),
    Measure(DRIVERS, Sort.GAUGE, "Drivers that are registered"),
    Measure(REGISTRATIONS, Sort.COUNTER, "Registrations of drivers, by how they ended", ("outcome",)),
    Measure(WITHDRAWALS, Sort.COUNTER, "Drivers whose slices were withdrawn because they stayed away"),
    Measure(REFUSALS, Sort.COUNTER, "Pods that were refused, by reason", ("reason",)),
)
"""Every metric of a node agent; those of the process come from the Prometheus client."""

PREPARING = "PrepareResources"
UNPREPARING = "UnprepareResources"
CONTAINER = "container"
INIT_CONTAINER = "init_container"


class Metrics(numbers.Metrics):
    """The numbers of one node agent."""

    def __init__(self) -> None:
        super().__init__(MEASURES)

    def operated(self, operation: str, seconds: float, *, failed: bool) -> None:
        """The claims of a pod were prepared or given back, or could not be."""
        self.observe(OPERATION_SECONDS, seconds, operation, "true" if failed else "false")

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """A driver was called."""
        self.observe(CALL_SECONDS, seconds, driver, method, code)

    def registered(self, outcome: str) -> None:
        """A driver wanted to register: `registered`, `refused` or `failed`."""
        self.count(REGISTRATIONS, outcome)

    def started(self, kind: str, error: str = "") -> None:
        """A container was to be started; `error` is a word for what went wrong."""
        self.count(STARTED, kind)
        if error:
            self.count(NOT_STARTED, kind, error)
