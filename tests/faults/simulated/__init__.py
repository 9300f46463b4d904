"""R-22: the whole cluster in the simulation of `tests/simulated`, with faults and a workload drawn from a
seed. It contains the workload, the faults, the checks after every commit, and planted faults that the checks
must find. Nothing imports it.
"""
