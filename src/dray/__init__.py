"""Dynamic Resource Allocation, whole, in Python.

This package holds the rooms of dray, from the exception tree at the bottom to the command line at the top;
every room says in its own charter what it is for. Nothing but the version number lives in this file, so that
importing one room never drags in another. Anybody may import `dray`; which room may import which is written
in `pyproject.toml` under `tool.importlinter` and checked by `make lint`.
"""

__version__ = "0.1.0.dev0"
