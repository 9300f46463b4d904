"""The conformance suite: checks of any driver, whatever language it is written in.

The suite uses only the gRPC protocols of drivers and the Kubernetes API; it must not use the kit. `dray
driver conformance` runs it, and so may the tests of a driver.
"""

from dray.driver.conformance.check_table import CHECKS
from dray.driver.conformance.results import ConformanceLevel, ConformanceResult, ConformanceVerdict
from dray.driver.conformance.suite import ConformanceOptions, ConformanceReport, run_conformance

__all__ = [
    "CHECKS",
    "ConformanceLevel",
    "ConformanceOptions",
    "ConformanceReport",
    "ConformanceResult",
    "ConformanceVerdict",
    "run_conformance",
]
