"""A plain model of the allocator of Kubernetes, in which every departure of dray is a switch.

It computes again what Kubernetes answers and what dray should answer to one question, by the plainest search
there is. Nothing but `sim.verdicts` uses it: it judges differences, it never allocates.
"""
