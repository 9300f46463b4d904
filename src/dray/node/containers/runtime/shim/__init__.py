"""The keeper: a little program that stays with one container, writes its log and tells how it ended.

It runs once per container and outlives the agent, so it imports nothing but the lean half of the standard
library (no `typing`, no `signal`, no `json`: each costs more memory than all of this room) and nothing of
dray outside this room. The runtimes start it and read the files it leaves.
"""
