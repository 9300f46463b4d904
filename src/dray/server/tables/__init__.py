"""Tables for `kubectl get`: columns for each kind, cells and ages; and objects reduced to metadata.

It renders objects and must not decide what they mean; a malformed object gives an odd cell and never an
error. Only the responses of the server import it.
"""

from dray.server.tables.partial_metadata import build_partial_metadata
from dray.server.tables.rendering import build_column_definitions, build_row, build_table

__all__ = ["build_column_definitions", "build_partial_metadata", "build_row", "build_table"]
