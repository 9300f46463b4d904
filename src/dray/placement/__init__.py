"""Which node a pod gets, and why: the snapshot, the plugins, the cycle, the verdicts.

Everything is a pure function of a frozen photograph of the cluster: no clocks, no watches, no writes. The
scheduler and the simulator ask it; it asks the allocator and knows no service.
"""
