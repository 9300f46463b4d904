"""Small programs that use a server as people's own would; the tests run each in a process of its own.

They import nothing of dray and nothing of the tests. What they print is what the tests read.
"""
