"""Figures: how long things take, measured here and now, never asserted in tests.

Material is generated from a fixed seed; what is compared runs in the same process, in turns. Nothing imports
this package; `python -m bench` or `make bench` runs it.
"""
