"""Pods per second, end to end: a whole cluster in one process, and the workloads of Kubernetes' own
benchmark.

Pods are created over HTTPS, claims come from templates, the scheduler allocates devices and nodes. Nothing
imports this package; `python -m bench.scheduler` or `make bench` runs it.
"""
