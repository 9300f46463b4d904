"""Fuzzing: many broken inputs through every door of the vocabulary, in search of the one nobody thought of.

A plain seeded generator, fast enough for hundreds of thousands of inputs; laws with shrinking live in
`tests/property`. Run `python -m tests.fuzz --structured 200000 --raw 200000`, or `make fuzz`.
"""
