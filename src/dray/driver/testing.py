"""Older import path of `dray.driver.conformance`, for test suites of drivers that were written against it."""

from dray.client.client import Client
from dray.driver.conformance import (
    CHECKS,
    ConformanceOptions,
    ConformanceReport,
    ConformanceResult,
    ConformanceVerdict,
    run_conformance,
)
from dray.driver.conformance.suite import ProgressTracker

Choices = ConformanceOptions
Outcome = ConformanceResult
Report = ConformanceReport
Verdict = ConformanceVerdict


async def examine(client: Client, choices: Choices, tracking: ProgressTracker = iter) -> Report:
    """Run the suite, with the parameter names of the older function."""
    return await run_conformance(client, choices, tracking)


__all__ = ["CHECKS", "Choices", "Outcome", "Report", "Verdict", "examine"]
