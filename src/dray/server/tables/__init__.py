"""Objects as rows that people read: columns for each kind, cells, ages; and objects reduced to metadata.

What an object means is decided elsewhere; here it is only shown, and a strange object makes a strange cell
and never an error. Only the part of the server that writes answers imports this package.
"""

from dray.server.tables.partial_metadata import build_partial_metadata
from dray.server.tables.rendering import build_column_definitions, build_row, build_table

__all__ = ["build_column_definitions", "build_partial_metadata", "build_row", "build_table"]
