"""Fuzzing: many broken inputs for the codec, the strategies, validation, manifests and lint.

A plain seeded generator, fast enough for hundreds of thousands of inputs; properties with shrinking are in
`tests/property`. Run `python -m tests.fuzz --structured 200000 --raw 200000`, or `make fuzz`.
"""
