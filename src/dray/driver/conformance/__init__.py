"""A suite that any driver can be held against, in whatever language it was written.

What is here speaks the protocols of drivers and the API, and knows nothing of how a driver is made: it may
not use the kit around it. `dray driver conformance` runs it, and so may the tests of a driver.
"""

from dray.driver.conformance.results import ConformanceResult, ConformanceVerdict
from dray.driver.conformance.suite import CHECKS, ConformanceOptions, ConformanceReport, run_conformance

__all__ = [
    "CHECKS",
    "ConformanceOptions",
    "ConformanceReport",
    "ConformanceResult",
    "ConformanceVerdict",
    "run_conformance",
]
