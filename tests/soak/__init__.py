"""The soak: a simulated day of steady work on one cluster, after which nothing may have grown.

It contains the work, the measurements and the decision about growth, on top of `tests.simulated`. `make soak`
runs it in full size; a small one is part of the test run. Nothing imports it.
"""
