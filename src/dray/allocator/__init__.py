"""Allocator: finds devices for claims on a node, given published slices, device classes and usage.

A pure search over frozen values: the same input always has the same answer and the same trace. This package
must not contain I/O, time, randomness or message texts (see explain), and reads feature gates only in
`feature_gates`. `explain`, `placement`, the simulation and everything above may import it, as may authors of
autoscalers.
"""
