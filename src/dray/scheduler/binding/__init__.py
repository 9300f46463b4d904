"""Writes placements to the server: allocations and reservations of claims, then the bindings of pods.

It must not decide where a pod goes. Only the rest of the scheduler imports it.
"""
