"""Objects as rows that people read: columns for each kind, cells, ages; and objects reduced to metadata.

What an object means is decided elsewhere; here it is only shown, and a strange object makes a strange cell
and never an error. Only the part of the server that writes answers imports this package.
"""

from dray.server.tables.partial_metadata import partial
from dray.server.tables.rendering import columns, row, table

__all__ = ["columns", "partial", "row", "table"]
