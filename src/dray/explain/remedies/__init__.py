"""Remedies for a claim that fits no node: a table of proposed changes, the claim edits behind them, and the
search that proves a proposal before it becomes a hint. It renders nothing and never gives a hint that was
not tested by the allocator. Only the diagnoser imports it.
"""
