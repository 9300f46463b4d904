"""Simulation: a cluster read from files, its pods placed, its allocations audited.

It contains bundles, the placement of their pods and claims, recorded vectors and benchmarks, all built from
the pure packages below. It must not contain file access, output, a server or a client. Commands and cluster
import it; vectors and benchmarks only the commands for development.
"""
