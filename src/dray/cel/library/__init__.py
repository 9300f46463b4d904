"""Function libraries of CEL, each of which an environment may include.

A library is a tuple of functions and depends on neither parsing, checking nor planning. Its functions get
values of the types they declare, fail only with `CelError`, and never build values larger than the limits
allow. Code that builds an environment imports this package.
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
"""The libraries of every Kubernetes environment."""

INCLUDES_LIBRARY: Final[tuple[Function, ...]] = lists.INCLUDES_LIBRARY
"""`includes`, and its other name `include`."""
