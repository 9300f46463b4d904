"""Messages between the server's process and a component process, on the control socket of the latter.

Theory of operation: they are frames as on the other sockets (`dray.wire.frames`). The first tells the process
which components it runs, with all of their options, and on which inherited sockets they reach the server.
Afterwards the process sends its log lines and says when it is ready, and answers questions for metrics. The
end of the control socket asks the process to stop; it also comes when the server's process is killed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Final

import msgspec
from prometheus_client.core import Metric

from dray.cluster.services.components import ComponentOptions
from dray.telemetry.logs import StructuredLogger

MAX_MESSAGE_BYTES: Final = 64 << 20

MetricSample = tuple[str, dict[str, str], float]
MetricFamily = tuple[str, str, str, list[MetricSample]]
"""Name, help text, type and samples of a metric."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """What all messages have in common: how they are encoded."""


class ComponentSettings(_Message, frozen=True):
    """One component of the process."""

    name: str
    user: str
    descriptor: int
    """The inherited socket on which it reaches the server."""
    options: dict[str, Any]


class StartMessage(_Message, frozen=True, tag=1):
    """What the process runs, and the lowest level of its log lines."""

    components: tuple[ComponentSettings, ...]
    log_level: int
    informers_user: str = ""
    """As whom the components read the kinds that they share; empty when they share none."""
    informers_descriptor: int = -1
    """The inherited socket for that."""


class MetricsRequest(_Message, frozen=True, tag=2):
    """Asks for the metrics of the components."""


ControlMessage = StartMessage | MetricsRequest
"""What a component process is told."""


class ReadyMessage(_Message, frozen=True, tag=3):
    """All components of the process work."""


class LogMessage(_Message, frozen=True, tag=4):
    """A log line, as JSON."""

    line: bytes


class MetricsMessage(_Message, frozen=True, tag=5):
    """The metrics of the components."""

    families: list[MetricFamily]


ComponentMessage = ReadyMessage | LogMessage | MetricsMessage
"""What a component process says."""


def encode_options(options: ComponentOptions) -> dict[str, Any]:
    """Encode the options of a component, except for its log."""
    chosen = {row.name: getattr(options, row.name) for row in fields(options) if row.name != "log"}
    encoded: dict[str, Any] = msgspec.to_builtins(chosen)
    return encoded


def decode_options(encoded: dict[str, Any], log: StructuredLogger) -> ComponentOptions:
    """Decode the options of a component, with the log of its process."""
    return replace(msgspec.convert(encoded, ComponentOptions), log=log)


def encode_metrics(metrics: Iterable[Metric]) -> list[MetricFamily]:
    """Encode metrics."""
    return [
        (
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, sample.labels, float(sample.value)) for sample in metric.samples],
        )
        for metric in metrics
    ]


def decode_metrics(families: Iterable[MetricFamily]) -> list[Metric]:
    """Decode metrics."""
    metrics = []
    for name, about, shape, samples in families:
        metric = Metric(name, about, shape)
        for sample in samples:
            metric.add_sample(*sample)
        metrics.append(metric)
    return metrics
