"""Structured logs, Prometheus metrics and health endpoints of a process.

It contains no metric and no message of any particular service: each service brings its own table of metrics
and its own messages. It must not know requests or objects. Services, `cluster` and `cli` import it; it
imports only the clock and the exception tree.
"""
