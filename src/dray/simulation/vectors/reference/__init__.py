"""Reference model: a plain model of the allocator of Kubernetes, in which every departure of dray is a
switch.

It recomputes what Kubernetes answers and what dray should answer to one vector, by the simplest possible
search. It must not import the allocator of dray. Only `vectors.comparison` and the generated reference pages
use it.
"""
