"""Runs a driver as a process: gRPC servers and plugin registration, the health stream, the driver service
that ties publishing and preparing together, the command line and shutdown. It must not contain the rules of
publishing, preparing, review or deployment, which are packages of their own. `dray.driver` itself imports it,
and so may `dray.cluster` and the command line; no other package of the kit does.
"""
