"""Benchmarks of the allocator: timed scenarios, generated clusters of any size and memory footprints. It must
not contain anything that the product needs at run time. Only commands import it.
"""
