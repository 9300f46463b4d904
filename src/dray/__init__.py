"""Dynamic Resource Allocation (DRA) of Kubernetes in Python.

This package contains the packages of dray, from the exception tree at the bottom to the command line at the
top. This file contains only the version number, so that importing one package never imports another. Everyone
may import `dray`; pyproject.toml lists which package may import which.
"""

__version__ = "0.1.0.dev0"
