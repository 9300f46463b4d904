"""Commands that ask the allocator about a cluster without changing it, and how they print the answer. It must
not contain rules of allocation (see `dray.simulation` and `dray.allocator`). Only `dray.cli.app` imports it.
"""
