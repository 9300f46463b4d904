"""Strategies of an API server for incoming objects: defaults, fields behind feature gates, creation.

The package contains tables and pure functions; no validation rule and no lookup of other objects. The API
server, the simulator, lint and the command line may import it.
"""
