"""Commands for work on dray itself: benchmarks, recorded vectors and the generated reference pages. They must
not be needed by any other command. Only the command table imports it.
"""
