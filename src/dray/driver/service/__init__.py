"""Runs a driver as a process.

The package holds the gRPC servers and plugin registration, the health monitor, the driver service that ties
publishing and preparing together, the command line and shutdown. It must not contain the rules of publishing,
preparing, reviews or manifests, which are packages of their own. `dray.driver`, `dray.cluster` and the
command line import it; no other package of the kit does.
"""
