"""Metrics of a driver: calls of the agent, claims it holds, devices it publishes.

Labels never hold names of claims or devices. The label `driver` distinguishes several drivers in one process.
"""

from __future__ import annotations

from typing import Final

from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import MetricDefinition, MetricType

CLAIM_CALLS: Final = "dray_driver_claims_total"
CLAIM_CALL_SECONDS: Final = "dray_driver_claim_seconds"
HELD_CLAIMS: Final = "dray_driver_held_claims"
GONE_CLAIMS: Final = "dray_driver_gone_claims"
WAITING_CLAIMS: Final = "dray_driver_waiting_claims"
DEVICES: Final = "dray_driver_devices"
PUBLICATIONS: Final = "dray_driver_publications_total"
WRITES: Final = "dray_driver_slice_writes_total"
HEALED: Final = "dray_driver_slices_healed_total"
FAILURES: Final = "dray_driver_publishing_failures_total"
REGISTERED: Final = "dray_driver_registered"
UNHEALTHY: Final = "dray_driver_unhealthy_devices"

_SECONDS_BUCKETS: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)

MEASURES: Final = numbers.build_metric_table(
    MetricDefinition(
        CLAIM_CALLS,
        MetricType.COUNTER,
        "Claims in calls of the agent, by method (prepare, unprepare) and result (ok, error)",
        ("driver", "method", "result"),
    ),
    MetricDefinition(
        CLAIM_CALL_SECONDS,
        MetricType.HISTOGRAM,
        "Time to prepare or unprepare a claim, by method",
        ("driver", "method"),
        _SECONDS_BUCKETS,
    ),
    MetricDefinition(
        HELD_CLAIMS, MetricType.GAUGE, "Claims that this driver holds, by their stage", ("driver", "stage")
    ),
    MetricDefinition(
        GONE_CLAIMS,
        MetricType.GAUGE,
        "Claims that did not exist any more when the driver started, and that stay prepared until the agent "
        "unprepares them",
        ("driver",),
    ),
    MetricDefinition(
        WAITING_CLAIMS,
        MetricType.GAUGE,
        "Claims in calls to prepare that wait for what will pass: a device that is held, an API that is away",
        ("driver",),
    ),
    MetricDefinition(DEVICES, MetricType.GAUGE, "Devices that the driver reported last", ("driver",)),
    MetricDefinition(
        PUBLICATIONS, MetricType.COUNTER, "Publications of the pools, by result", ("driver", "result")
    ),
    MetricDefinition(
        WRITES,
        MetricType.COUNTER,
        "Slices written, by operation (create, update, delete)",
        ("driver", "operation"),
    ),
    MetricDefinition(
        HEALED, MetricType.COUNTER, "Slices written to restore what another writer had changed", ("driver",)
    ),
    MetricDefinition(
        FAILURES,
        MetricType.COUNTER,
        "Attempts to publish that failed and were retried: the server was unavailable, or "
        "another writer was faster",
        ("driver",),
    ),
    MetricDefinition(
        REGISTERED, MetricType.GAUGE, "Whether the agent has registered this driver", ("driver",)
    ),
    MetricDefinition(
        UNHEALTHY, MetricType.GAUGE, "Devices that the driver reports as unhealthy", ("driver",)
    ),
)
