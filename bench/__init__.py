"""Benchmarks: how long operations take on this machine, never asserted in tests.

Inputs are generated from a fixed seed; what is compared runs in the same process, in turns. Nothing imports
this package; `python -m bench` or `make bench` runs it.
"""
