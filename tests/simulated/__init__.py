"""Simulated surroundings for the real components: one event loop in virtual time, in which processes,
network, store and disks are simulated, and everything that happens follows from a seed. It contains no
workload and no checks; those are in `tests/faults/simulated`. Tests may import it.
"""
