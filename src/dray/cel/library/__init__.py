"""The functions an expression may call, in libraries that an environment can take or leave.

A library is a tuple of functions and knows nothing of parsing, checking or planning. Its functions get values
of the types they declare, fail only with an error of CEL, and never build what could not be paid for. Whoever
builds an environment imports this package.
"""

from __future__ import annotations

from typing import Final

from dray.cel.declarations import Function
from dray.cel.library import (
    conversions,
    lists,
    named_formats,
    network,
    operators,
    optionals,
    quantity_semver,
    strings,
    time_getters,
    urls,
)

STANDARD_LIBRARIES: Final[tuple[tuple[Function, ...], ...]] = (
    operators.LIBRARY,
    conversions.LIBRARY,
    time_getters.LIBRARY,
    optionals.LIBRARY,
    strings.LIBRARY,
    lists.LIBRARY,
    quantity_semver.LIBRARY,
    network.LIBRARY,
    urls.LIBRARY,
    named_formats.LIBRARY,
)
"""What every Kubernetes environment has."""

INCLUDES_LIBRARY: Final[tuple[Function, ...]] = lists.INCLUDES_LIBRARY
"""`includes`, and its other name `include`."""
