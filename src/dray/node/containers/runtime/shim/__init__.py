"""The container shim: a small program that starts one container, writes its log and records its exit.

One shim runs per container and outlives the agent, so it imports only the small part of the standard library
(no `typing`, no `signal`, no `json`: each costs more memory than this whole package) and nothing of dray
outside this package. The runtimes start it and read the files it leaves.
"""
