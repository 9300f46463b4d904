"""Node agents for benchmarks, many in one process: each with a runtime that runs nothing and a real driver.

Agents and drivers are those of dray; they reach the server over HTTPS, each as its own user, and each other
by their sockets. Nothing else may be in that process. `bench.scheduler` starts it.
"""
