"""Builds the API server, scheduler, controllers and node agents from options and runs them as processes:
supervision, signals, permission checks, standalone operation. It must not decide anything about devices,
pods or claims and must not create example objects. `dray.cluster.local` and `dray.cli` import it.
"""
