"""The plain answer: a deliberately naive allocator, random small problems, and the laws that compare.

Nothing here may use the search, the stock or the checks of `dray.allocator` to find an answer; only the laws
call them, to compare. Tests import it; `python -m tests.brute` runs it at full size.
"""
