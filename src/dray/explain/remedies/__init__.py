"""Remedies for claims that fit no node: a table of proposed changes, the edits of claims they need, and the
search that proves a proposal before it becomes a hint. It renders nothing and never gives a hint that the
allocator did not confirm. Only the diagnoser imports it.
"""
