"""Calls of a classic controller's methods as coroutines, with decoded requests and metrics.

Rules for this file: every exception of an author becomes `ControllerCallError`, so that a mistake in a driver
is reported on the claim that it happened with and never ends the controller.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from dray.api.classic import ClassicResourceClaim, ResourceClass
from dray.api.classic.resource_claim import IMMEDIATE
from dray.api.json_text import read_json
from dray.clock import Clock
from dray.driver.async_driver import THREAD_NAME_PREFIX, call_containing_exit
from dray.driver.base import Parameters
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    NoAllocationAvailable,
)
from dray.driver.parameters import InvalidParametersError, decode_parameters
from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType

CALLS: Final = "dray_driver_classic_calls_total"
CALL_SECONDS: Final = "dray_driver_classic_call_seconds"

MEASURES: Final = numbers.build_metric_table(
    MetricDefinition(
        CALLS,
        MetricType.COUNTER,
        "Calls of the author's methods, by method and result (ok, unavailable, error)",
        ("driver", "method", "result"),
    ),
    MetricDefinition(
        CALL_SECONDS,
        MetricType.HISTOGRAM,
        "Time the author's methods took",
        ("driver", "method"),
        (0.001, 0.01, 0.1, 1.0, 10.0, 60.0),
    ),
)


_RESULT_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "allocate": (
        (ClassicAllocation, NoAllocationAvailable),
        "`ClassicAllocation` or `NoAllocationAvailable`",
    ),
    "unsuitable_nodes": ((Collection,), "a collection of names"),
}
"""The types that a method must return."""


class ControllerCallError(Exception):
    """A method of the author raised an exception."""

    def __init__(self, method: str, cause: Exception) -> None:
        super().__init__(f"{method} failed: {type(cause).__name__}: {cause}")
        self.method = method


class AsyncController:
    """The methods of one controller, as coroutines."""

    def __init__(self, controller: ClassicController, clock: Clock, metrics: MetricsRegistry) -> None:
        self._controller, self._clock, self._metrics = controller, clock, metrics
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"{THREAD_NAME_PREFIX}{controller.name}")

    def build_request(
        self, claim: ClassicResourceClaim, resource_class: ResourceClass | None
    ) -> ClassicClaimRequest | str:
        """Build the request of a claim; a string says why there is none."""
        name = claim.spec.resource_class_name
        if resource_class is None:
            return f"resource class `{name}` does not exist"
        try:
            class_parameters = _decode_parameters(
                self._controller.class_parameters,
                resource_class.parameters,
                f"resource class `{name}`: parameters",
            )
            parameters = _decode_parameters(
                self._controller.parameters, claim.spec.parameters, "spec.parameters"
            )
        except InvalidParametersError as wrong:
            return str(wrong)
        metadata, immediate = claim.metadata, claim.spec.allocation_mode == IMMEDIATE
        return ClassicClaimRequest(
            metadata.namespace, metadata.name, metadata.uid, name, class_parameters, parameters, immediate
        )

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the author, and return its result."""
        started_at, result = self._clock.monotonic(), "error"
        call = getattr(self._controller, method)
        try:
            if inspect.iscoroutinefunction(call):
                answer = await call(*arguments)
            else:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._threads, call_containing_exit, call, *arguments)
                if inspect.isawaitable(answer):
                    answer = await answer
            _check_result(method, answer)
            result = "unavailable" if isinstance(answer, NoAllocationAvailable) else "ok"
            return answer
        except Exception as failed:
            raise ControllerCallError(method, failed) from failed
        finally:
            self._metrics.count(CALLS, self._controller.name, method, result)
            self._metrics.observe(
                CALL_SECONDS, self._clock.monotonic() - started_at, self._controller.name, method
            )


def _check_result(method: str, answer: Any) -> None:
    kinds, expected = _RESULT_TYPES.get(method, ((object,), ""))
    if not isinstance(answer, kinds) or (expected and isinstance(answer, str)):
        raise TypeError(f"it must return {expected}, not `{answer!r}`")


def _decode_parameters(schema: Parameters, raw: msgspec.Raw, path: str) -> Any:
    """Decode parameters by their schema; without one they are a plain document."""
    written = bytes(raw)
    if schema is not None:
        return decode_parameters(schema, written or b"{}", path)
    return read_json(written) if written else None
