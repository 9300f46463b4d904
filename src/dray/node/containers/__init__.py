"""Containers on a node: command and environment variables, CDI edits, log files and their reader, and the
runtimes in `runtime`. It contains nothing about claims, drivers or restart policies. The pod workers, the
agent and its log endpoint import it.
"""
