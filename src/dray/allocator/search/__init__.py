"""Backtracking search for devices: candidate sets, search frames, the trace of events, pruning, and searches
that are paused and resumed. It must not contain device names, feature gates, message texts or a clock.
`allocate`, `explain`, `placement` and the simulation import it.
"""
